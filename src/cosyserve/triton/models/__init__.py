"""The code of each Triton model: the `TritonPythonModel` that a repository's model.py imports.

These modules live inside Triton's Python backend and can be imported nowhere else.
"""
