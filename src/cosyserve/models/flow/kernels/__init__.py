"""Kernels of the flow for a GPU."""
