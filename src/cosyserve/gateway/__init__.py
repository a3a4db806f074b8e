"""The server's side of every connection: OpenAI's speech API, a WebSocket, voices, metrics.

It imports no torch, so that it starts in a second: it has an `Engine` by its Protocol.
"""
