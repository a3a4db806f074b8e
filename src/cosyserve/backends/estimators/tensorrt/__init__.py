"""Graphs as TensorRT engines."""
