"""Voices over HTTP: their routes, their names, recordings of strangers."""
