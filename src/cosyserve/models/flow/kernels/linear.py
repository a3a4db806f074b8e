"""Linear layers over many rows, with what stands before and behind them in the same launch.

A launch asks for its weights, and waits for the launch before it only then.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import numbers, spread, tile, times

Norm = tuple[Tensor, Tensor, float]  # weight, bias, eps


class Tile(NamedTuple):
    """What a program computes at a time, and with what."""

    rows: int
    columns: int
    warps: int
    stages: int


Tiles = tuple[Tile, ...]  # for few, some, many and most rows: as measured on an H200

# Rows; most are more than the GPU computes at a time in tiles that are best for many.
SOME, MANY, MOST = 640, 2048, 8449
LINEAR_ADD = Tile(16, 128, 8, 1), Tile(64, 32, 8, 1), Tile(64, 128, 4, 4), Tile(128, 256, 8, 3)
HELD = 1024  # numbers of a sum that a program holds if there are few rows
LONG_SUMS = Tile(16, 32, 4, 4), Tile(64, 64, 4, 4), *LINEAR_ADD[2:]  # that come in turns
NORM_MISH = Tile(4, 0, 4, 1)
DEPTH = 64  # numbers of a sum per turn with many rows
AREA = 8192  # of a weight's tile per turn with few


def many(rows: int) -> bool:
    """Whether what takes longest is products; with fewer rows it is waiting."""
    return rows >= MANY


def most(rows: int) -> bool:
    """Whether they are more than a large GPU takes at a time."""
    return rows >= MOST


def fitting(rows: int, tiles: Tiles) -> Tile:
    return tiles[min(sum(rows >= least for least in (SOME, MANY, MOST)), len(tiles) - 1)]


@triton.jit
def mish(y):
    """y tanh(log(1 + e^y))."""
    e = tl.exp(tl.minimum(y, 20.0))
    square = e * e + 2.0 * e
    return y * square / (square + 2.0)


@triton.jit(do_not_specialize=["rows"])
def _linear_add(
    x,
    weight,
    bias,
    residual,
    out,
    rows,
    outputs,
    size: tl.constexpr,
    adds: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    halves: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    n = tl.program_id(1) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    if pdl:
        gdc_launch_dependents()
    if halves:
        w = tile(weight, n, k, outputs, size, size)
        w_more = tile(weight, n, bk + k, outputs, size, size)
    b = numbers(bias, n, outputs)
    if pdl:
        gdc_wait()
    if halves:
        found = tile(x, m, k, rows, size, size)
        more = tile(x, m, bk + k, rows, size, size)
    at = m[:, None] * outputs + n[None, :]
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    added = tl.zeros((bm, bn), tl.float32)
    if adds:
        added = tl.load(residual + at, mask=written, other=0.0).to(tl.float32)
    acc = tl.zeros((bm, bn), tl.float32) + b
    if halves:  # two sums side by side: a product that waits for another takes its time
        acc = times(found, w, acc, exact) + times(more, w_more, added, exact)
    else:
        for begin in range(0, size, bk):
            found = tile(x, m, begin + k, rows, size, size)
            w = tile(weight, n, begin + k, outputs, size, size)
            acc = times(found, w, acc, exact)
        acc += added
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=written)


def linear_add(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    *,
    exact: bool,
) -> Tensor:
    """residual + x W^T + bias: x [R, K], residual [R, N] -> [R, N]."""
    rows, size = x.shape
    outputs = weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    whole = not many(rows) and size <= HELD  # sums in one go
    bm, bn, warps, stages = fitting(rows, LINEAR_ADD if size <= HELD else LONG_SUMS)
    if whole:
        depth = max(16, triton.next_power_of_2(size) // 2)
    else:
        depth = DEPTH if many(rows) else AREA // bn
    launch(
        _linear_add,
        (triton.cdiv(rows, bm), triton.cdiv(outputs, bn)),
        x,
        weight,
        bias,
        x if residual is None else residual,
        out,
        rows,
        outputs,
        size,
        residual is not None,
        exact,
        bm,
        bn,
        depth,
        whole,
        pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _norm_mish(
    x,
    scale,
    shift,
    table,
    step,
    added,
    out,
    rows,
    stride,
    added_stride,
    eps,
    size: tl.constexpr,
    timed: tl.constexpr,
    adds: tl.constexpr,
    bm: tl.constexpr,
    bk: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    k = tl.arange(0, bk)
    if pdl:
        gdc_launch_dependents()
    factor, addend = numbers(scale, k, size), numbers(shift, k, size)
    if pdl:
        gdc_wait()
    found = tile(x, m, k, rows, size, stride).to(tl.float32)
    wide = (k < size)[None, :]
    mean, scaling = spread(found, size, eps, wide)
    y = mish((found - mean) * scaling * factor + addend)
    if timed:
        y += numbers(table + tl.load(step) * size, k, size)
    if adds:
        y += tile(added, m, k, rows, size, added_stride).to(tl.float32)
    at = out + m[:, None] * size + k[None, :]
    tl.store(at, y.to(out.dtype.element_ty), mask=(m < rows)[:, None] & wide)


def norm_mish(
    x: Tensor, norm: Norm, table: Tensor | None, step: Tensor, added: Tensor | None = None
) -> Tensor:
    """LayerNorm and Mish of x [R, K], and then line `step` [1] of the table [S, K] or `added`
    [R, K]. Rows of x and `added` may be parts of longer ones."""
    rows, size = x.shape
    out = torch.empty(rows, size, device=x.device, dtype=x.dtype)
    bm, _, warps, stages = NORM_MISH
    launch(
        _norm_mish,
        (triton.cdiv(rows, bm),),
        x,
        norm[0],
        norm[1],
        x if table is None else table,
        step,
        x if added is None else added,
        out,
        rows,
        x.stride(0),
        size if added is None else added.stride(0),
        norm[2],
        size,
        table is not None,
        added is not None,
        bm,
        max(16, triton.next_power_of_2(size)),
        pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out
