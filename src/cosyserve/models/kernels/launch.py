"""How the kernels of this room are launched; or only compiled, before they are needed.

Compiling one takes a second or more, and there are a hundred: they are compiled on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import triton

_compiling: ContextVar[bool] = ContextVar("compiling", default=False)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    if _compiling.get():
        kernel.warmup(*args, grid=grid, **options)
    else:
        kernel[grid](*args, **options)


@contextmanager
def only_compiled() -> Iterator[None]:
    """Inside, kernels are not launched: what they would write is not written. Behind it, those that
    were asked for are compiled. (Before Triton 3.5 one after another.)"""
    token = _compiling.set(True)
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            mode = getattr(triton, "AsyncCompileMode", None)
            if mode is None:
                yield
            else:
                with mode(pool):
                    yield
    finally:
        _compiling.reset(token)
