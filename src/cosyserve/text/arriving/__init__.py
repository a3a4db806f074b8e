"""A text that arrives piece by piece, read as the whole text would be."""
