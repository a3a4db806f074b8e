"""Doors for the clients of the original project."""
