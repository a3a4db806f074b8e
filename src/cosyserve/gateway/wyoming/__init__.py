"""The Wyoming protocol, by which Home Assistant asks for speech."""
