"""Kernels in Triton's language for a GPU; each has a plain function of `models` as its reference.

Importing this room's files needs the package `triton`, which torch for CUDA brings along; nothing
else imports them before it has seen that there is a GPU.
"""

from importlib.util import find_spec

AVAILABLE = find_spec("triton") is not None
