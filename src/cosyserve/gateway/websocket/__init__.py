"""Speech over a WebSocket: text goes in piece by piece, audio comes out meanwhile."""
