"""Launching kernels; or only compiling them, before they are needed.

Compiling one takes a second or more, and there are a hundred: they are compiled on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import triton
import triton.language as tl

TRIES = 5

_compiling: ContextVar[bool] = ContextVar("compiling", default=False)


def launch(kernel: Any, grid: tuple[int, ...], /, **arguments: Any) -> None:
    """`arguments` are the kernel's parameters and the options of the launch, all by name."""
    if _compiling.get():
        kernel.warmup(grid=grid, **arguments)
    else:
        kernel[grid](**arguments)


class CompilerPool(ThreadPoolExecutor):
    """Threads that compile. What fails by a SystemError is tried again: Python 3.11 counts the
    depth of what it parses for all threads together, and now and then miscounts."""

    def submit(self, work: Callable[[], Any], /, *_: Any, **__: Any) -> Future[Any]:
        return super().submit(_tried, work)


def _tried(work: Callable[[], Any]) -> Any:
    for _ in range(TRIES - 1):
        try:
            return work()
        except SystemError:
            continue
    return work()


@contextmanager
def only_compiled() -> Iterator[None]:
    """Inside, `launch` compiles its kernel and writes nothing; behind it, all of them are compiled.
    (Before Triton 3.5 they are compiled one after another.)"""
    token = _compiling.set(True)
    try:
        with CompilerPool(os.cpu_count()) as pool:
            mode = getattr(triton, "AsyncCompileMode", None)
            if mode is None:
                yield
            else:
                with mode(pool):
                    yield
    finally:
        _compiling.reset(token)


@triton.jit
def prefetch_l2(at):
    """Brings the 128-byte lines behind these addresses into the L2 cache, without waiting."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
        "=r,l",
        [at.to(tl.uint64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def behind_loads(x):
    """x. All loads that stand before this are under way before x is waited for: else it is put into
    shared memory the moment it comes, and what is loaded next waits for that."""
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;",
        "=r,r",
        [x],
        dtype=x.dtype,
        is_pure=False,
        pack=32 // x.dtype.primitive_bitwidth,
    )
