"""Text in pieces in, audio out, over a WebSocket."""
