"""Voices in memory, within a number of bytes: learned ones, and those that the far end knows."""
