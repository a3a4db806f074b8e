"""Kernels of the speech LM for a GPU."""
