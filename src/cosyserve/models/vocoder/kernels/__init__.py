"""Kernels of the vocoder for a GPU."""
