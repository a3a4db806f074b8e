"""Compiles every kernel for compute capability 9.0, at full size, and prints their names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from cosyserve.models.kernels import (
    attention,
    causal_conv,
    chunk_attention,
    draw,
    elementwise,
    linear,
    rows,
    snake,
)

HOPPER = GPUTarget("cuda", 90, 32)
TILE: dict[str, Any] = {"exact": False, "bm": 16, "bn": 16, "bk": 128, "count": 4}


def compiles(kernel: Any, types: Sequence[str], warps: int = 4, **constants: Any) -> None:
    """`types` of all arguments but the constants, in order."""
    rest = iter(types)
    signature, given = {}, {}
    for index, name in enumerate(kernel.arg_names):
        signature[name] = "constexpr" if name in constants else next(rest)
        if name in constants:
            given[(index,)] = constants[name]
    source = ASTSource(kernel, signature=signature, constexprs=given)
    found = triton.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": 3})
    assert found.asm["cubin"]
    sys.stdout.write(f"{kernel.__name__}\n")


half, whole, number = "*bf16", "*fp32", "i32"
norm = (whole, half, half, half), (number, number, number, "fp32")
compiles(linear._norm_linear, (*norm[0], whole, *norm[1]), **TILE, gated=False, biased=True)
compiles(linear._norm_linear, (*norm[0], half, *norm[1]), **TILE, gated=True, biased=False)
compiles(linear._project, (half, half, whole, whole, *[number] * 4), **TILE)
compiles(
    linear._merge_project,
    (whole, whole, half, whole, whole, *[number] * 4),
    **TILE | {"bk": 64, "splits": 8, "width": 64},
)
sizes = {"width": 64, "group": 7, "exact": False, "bg": 16, "bk": 64, "bd": 64}
compiles(
    attention._attend,
    (whole, whole, "*i64", half, half, whole, whole, *[number] * 7, "fp32"),
    **sizes,
    splits=8,
)
compiles(elementwise._add_norm, (whole, half, half, half, number, "fp32"), adds=True, block=1024)
compiles(elementwise._gate, (half, half, number), block=1024)
compiles(
    draw._draw,
    (whole, "*i64", "*fp64", "*fp64", "*i64", *[number] * 3),
    16,
    elsewhere=True,
    window=64,
    most=64,
    block=8192,
)

# Those of flow and vocoder.
tile: dict[str, Any] = {"exact": False, "bm": 32, "bn": 32, "bk": 64}
compiles(
    rows._norm_linear,
    (*[half] * 6, number, number, "fp32"),
    **tile | {"size": 256, "bn": 64, "bk": 256, "biased": True, "gelu": True},
)
compiles(rows._linear_add, (*[half] * 5, number, number), **tile, size=1024, adds=True)
compiles(
    causal_conv._causal_conv,
    (*[half] * 7, number, "fp32"),
    8,
    **tile | {"size": 256, "outputs": 256, "bm": 16, "bn": 256, "norms": True, "adds": True},
)
compiles(
    chunk_attention._attend,
    (half, "*i64", "*i64", half, number, number, "fp32"),
    width=64,
    exact=False,
    bq=64,
    bk=64,
    bd=64,
)
compiles(snake._snake, (whole, whole, "*i64", whole, number, number), cuts=True, block=1024)
