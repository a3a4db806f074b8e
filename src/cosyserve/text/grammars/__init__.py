"""Grammars of wetext: what they make of a text, found in a fraction of their own library's time."""
