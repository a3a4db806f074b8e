"""Text to the ids of a language model: whole, in pieces, and the tokens that are no text."""
