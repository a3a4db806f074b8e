"""Linear layers over many rows, with what stands before and behind them in the same launch.

A launch loads its weights before it waits for the launch before it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import Budget, budget, pdl, processors
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import load_tile, load_vector, mean_rstd, times

Norm = tuple[Tensor, Tensor, float]  # weight, bias, eps


class Tile(NamedTuple):
    """Rows and columns that a program computes at a time, and its warps and stages."""

    rows: int
    columns: int
    warps: int
    stages: int

    def programs(self, rows: int, columns: int) -> int:
        return int(triton.cdiv(rows, self.rows) * triton.cdiv(columns, self.columns))


Tiles = tuple[Tile, ...]  # for small, large and huge numbers of rows

# Rows from which on a call is large and huge, as measured on an H200.
LARGE_ROWS, HUGE_ROWS = 640, 8449
LONE_ROWS = 128  # of a first chunk that is computed alone, with and without conditions
LINEAR_ADD: dict[Budget, Tiles] = {
    Budget.HOPPER: (Tile(16, 128, 8, 1), Tile(64, 128, 4, 4), Tile(128, 256, 8, 3)),
    Budget.SMALL: (Tile(16, 32, 4, 1), Tile(64, 64, 4, 4), Tile(128, 128, 8, 3)),
}
HELD = {Budget.HOPPER: 1024, Budget.SMALL: 256}  # terms of a sum at once, below LARGE_ROWS
LONE = {Budget.HOPPER: Tile(16, 64, 8, 1)}  # of sums with more than half as many: registers are few
# Of large calls, where all programs of such tiles run at once: three on a processor.
LOW_LARGE = {Budget.HOPPER: Tile(64, 64, 4, 4)}
LONG_SUMS: dict[Budget, Tiles] = {  # of more terms than HELD
    Budget.HOPPER: (Tile(16, 32, 4, 4), *LINEAR_ADD[Budget.HOPPER][1:]),
    Budget.SMALL: (Tile(16, 32, 4, 4), *LINEAR_ADD[Budget.SMALL][1:]),
}
NORM_MISH = Tile(4, 0, 4, 1)
DEPTH = 64  # terms of a sum per turn of the loop, from LARGE_ROWS on
# Of a weight's tile per turn of the loop, below LARGE_ROWS.
AREA = {Budget.HOPPER: 8192, Budget.SMALL: 4096}


def is_large(rows: int) -> bool:
    """Whether products take longest; with fewer rows, waiting for memory does."""
    return rows >= LARGE_ROWS


def is_lone(rows: int) -> bool:
    """Whether they are at most those of a first chunk that is computed alone: a program may hold
    more of it, for there are few."""
    return rows <= LONE_ROWS


def tile_for(rows: int, tiles: Tiles, lone: Tile | None = None) -> Tile:
    """`lone`: where lone rows have a tile of their own."""
    if lone and is_lone(rows):
        return lone
    size = sum(rows >= first for first in (LARGE_ROWS, HUGE_ROWS))
    return tiles[min(size, len(tiles) - 1)]


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
    ieee: tl.constexpr,
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
        w = load_tile(weight, n, k, outputs, size, size)
        w_more = load_tile(weight, n, bk + k, outputs, size, size)
    b = load_vector(bias, n, outputs)
    if pdl:
        gdc_wait()
    if halves:
        x_tile = load_tile(x, m, k, rows, size, size)
        more = load_tile(x, m, bk + k, rows, size, size)
    at = m[:, None] * outputs + n[None, :]
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    added = tl.zeros((bm, bn), tl.float32)
    if adds:
        added = tl.load(residual + at, mask=written, other=0.0).to(tl.float32)
    acc = tl.zeros((bm, bn), tl.float32) + b
    if halves:  # two sums side by side: a product that waits for another takes its time
        acc = times(x_tile, w, acc, ieee) + times(more, w_more, added, ieee)
    else:
        for begin in range(0, size, bk):
            x_tile = load_tile(x, m, begin + k, rows, size, size)
            w = load_tile(weight, n, begin + k, outputs, size, size)
            acc = times(x_tile, w, acc, ieee)
        acc += added
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=written)


def linear_add(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    *,
    ieee: bool,
) -> Tensor:
    """residual + x W^T + bias: x [R, K], residual [R, N] -> [R, N]."""
    rows, size = x.shape
    outputs = weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    cut = budget(x.device)
    held = size <= HELD[cut]
    whole = not is_large(rows) and held  # sums in one go
    lone = LONE.get(cut) if held and 2 * size > HELD[cut] else None
    tile, low = tile_for(rows, (LINEAR_ADD if held else LONG_SUMS)[cut], lone), LOW_LARGE.get(cut)
    if low and is_large(rows) and low.programs(rows, outputs) <= 3 * processors(x.device):
        tile = low
    bm, bn, warps, stages = tile
    if whole:
        depth = max(16, triton.next_power_of_2(size) // 2)
    else:
        depth = DEPTH if is_large(rows) else AREA[cut] // bn
    launch(
        _linear_add,
        (triton.cdiv(rows, bm), triton.cdiv(outputs, bn)),
        x=x,
        weight=weight,
        bias=bias,
        residual=x if residual is None else residual,
        out=out,
        rows=rows,
        outputs=outputs,
        size=size,
        adds=residual is not None,
        ieee=ieee,
        bm=bm,
        bn=bn,
        bk=depth,
        halves=whole,
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out


def gelu_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GELU, near enough by tanh, of a product: on a GPU the library computes it before the product
    is written."""
    if x.is_cuda:
        return torch._addmm_activation(bias, x, weight.T, use_gelu=True)
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


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
    factor, addend = load_vector(scale, k, size), load_vector(shift, k, size)
    if timed:  # the step is older than the last launch that did not begin early
        moment = load_vector(table + tl.load(step) * size, k, size)
    if pdl:
        gdc_wait()
    x_tile = load_tile(x, m, k, rows, size, stride).to(tl.float32)
    wide = (k < size)[None, :]
    mean, scaling = mean_rstd(x_tile, size, eps, wide)
    y = mish((x_tile - mean) * scaling * factor + addend)
    if timed:
        y += moment
    if adds:
        y += load_tile(added, m, k, rows, size, added_stride).to(tl.float32)
    at = out + m[:, None] * size + k[None, :]
    tl.store(at, y.to(out.dtype.element_ty), mask=(m < rows)[:, None] & wide)


def norm_mish(
    x: Tensor, norm: Norm, table: Tensor | None, step: Tensor, added: Tensor | None = None
) -> Tensor:
    """LayerNorm and Mish of x [R, K], and then line `step` [1] of the table [S, K] and `added`
    [R, K], where there are such. Rows of x and `added` may be parts of longer ones."""
    rows, size = x.shape
    out = torch.empty(rows, size, device=x.device, dtype=x.dtype)
    bm, _, warps, stages = NORM_MISH
    launch(
        _norm_mish,
        (triton.cdiv(rows, bm),),
        x=x,
        scale=norm[0],
        shift=norm[1],
        table=x if table is None else table,
        step=step,
        added=x if added is None else added,
        out=out,
        rows=rows,
        stride=x.stride(0),
        added_stride=size if added is None else added.stride(0),
        eps=norm[2],
        size=size,
        timed=table is not None,
        adds=added is not None,
        bm=bm,
        bk=max(16, triton.next_power_of_2(size)),
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out
