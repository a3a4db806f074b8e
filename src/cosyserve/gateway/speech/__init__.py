"""Text to speech over HTTP: the body, the route, the answer and its bytes."""
