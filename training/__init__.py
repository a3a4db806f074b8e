"""Recipes that train the parts of a small model; nothing of the package imports them."""
