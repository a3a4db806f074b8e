"""How many listeners a set of GPUs serves, and what runs where: from measured figures only."""
