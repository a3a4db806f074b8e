"""Where voices are kept as bytes: a folder, a Redis server."""
