"""Protocols for programs and people: OpenAI's speech API over HTTP, voices, health, metrics.

Knows an `Engine` and a store of voices by their Protocols; knows no model, and never imports torch.
"""
