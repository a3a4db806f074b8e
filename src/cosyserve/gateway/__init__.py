"""Protocols for programs and people: OpenAI's speech API over HTTP, a WebSocket, voices, metrics.

Knows an `Engine` and a store of voices by their Protocols; knows no model, and never imports torch.
"""
