"""What becomes of freed memory: glibc keeps it in part. Another C library is left as it is."""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of mallopt


def return_freed_memory() -> None:
    """What is free now goes back to the system, also between blocks in use; some milliseconds."""
    _call("malloc_trim", 0)


def return_large_blocks(size: int) -> None:
    """From now on a block of so many bytes goes back to the system with its end."""
    _call("mallopt", MMAP_THRESHOLD, size)


def keep_blocks(size: int) -> None:
    """From now on blocks below so many bytes, and the space of those that ended, stay here for the
    next ones."""
    _call("mallopt", TRIM_THRESHOLD, 1 << 30)
    _call("mallopt", MMAP_THRESHOLD, size)


def _call(name: str, *values: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*values)
