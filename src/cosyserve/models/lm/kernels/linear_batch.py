"""Linear layers of a decoding step of tens of rows, or of a short prompt, with what stands around.

Each weight is read once. A launch prefetches its weights before it waits for the launch before it,
so that they are in the cache when there is something to multiply them with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import launch, prefetch_l2
from cosyserve.models.kernels.tiles import load_tile, load_vector, times


class Unscaled(NamedTuple):
    """The output of an RMSNorm but for its factor, which is the same for all columns of a row."""

    rows: Tensor  # [B, K] times the norm's weights
    squares: Tensor  # [parts, B] float32: sums of the squares of the norm's input


class BatchTile(NamedTuple):
    """Rows and outputs of a program, terms of their sums per turn of its loop, and its warps and
    stages."""

    rows: int
    outputs: int
    depth: int
    warps: int
    stages: int


# By what they are cut for, rising in rows: a program takes them all, so that each weight is read
# once. The quick matrix units take 64; smaller tiles are slower even for few.
#
# As measured on an H200. So large that a processor holds one program: else those of
# the next launch, which begin early, would crowd on processors that this one leaves free. With
# small tiles none begins early, and two programs share a processor where they can.
PLAIN = {
    Budget.HOPPER: (BatchTile(64, 32, 128, 4, 6), BatchTile(128, 32, 128, 8, 4)),
    Budget.SMALL: (BatchTile(64, 32, 64, 4, 4),),
}
GATED = {
    Budget.HOPPER: (BatchTile(64, 64, 128, 4, 3), BatchTile(128, 64, 64, 8, 6)),
    Budget.SMALL: (BatchTile(64, 32, 64, 4, 3),),
}
LINE = 64  # weights of 128 bytes, which the cache takes at a time


@triton.jit
def _prefetch_tile(
    weight, n, first, outputs, size: tl.constexpr, lines: tl.constexpr, line: tl.constexpr
):
    """Brings a tile of weights into the L2 cache, without waiting."""
    k = tl.minimum(first + line * tl.arange(0, lines), size - 1)
    prefetch_l2(weight + tl.minimum(n, outputs - 1)[:, None] * size + k[None, :])


@triton.jit(do_not_specialize=["rows"])
def _batch_linear(
    x,
    weight,
    bias,
    residual,
    scale,
    squares,
    out,
    rows,
    outputs,
    eps,
    size: tl.constexpr,
    piece: tl.constexpr,
    parts: tl.constexpr,
    gated: tl.constexpr,
    biased: tl.constexpr,
    adds: tl.constexpr,
    ieee: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    bp: tl.constexpr,
    lines: tl.constexpr,
    line: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.arange(0, bm)
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    first = tl.program_id(1) * piece
    k = tl.arange(0, bk)
    second = weight + outputs * size  # of two matrices, if they are gated
    if pdl:
        _prefetch_tile(weight, n, first, outputs, size, lines, line)
        if gated:
            _prefetch_tile(second, n, first, outputs, size, lines, line)
    if biased:
        b = load_vector(bias, n, outputs)
    if adds:
        g = load_vector(scale, n, outputs)
    if pdl:
        gdc_wait()
        gdc_launch_dependents()
    at = m[:, None] * outputs + n[None, :]
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    if adds:
        before = tl.load(residual + at, mask=written, other=0.0)
    if parts:
        total = tl.sum(load_tile(squares, tl.arange(0, bp), m, parts, rows, rows), 0)
        factor = tl.rsqrt(total / size + eps)[:, None]
    acc = tl.zeros((bm, bn), tl.float32)
    other = tl.zeros((bm, bn), tl.float32)
    for begin in range(first, min(first + piece, size), bk):
        x_tile = load_tile(x, m, begin + k, rows, size, size)
        acc = times(x_tile, load_tile(weight, n, begin + k, outputs, size, size), acc, ieee)
        if gated:
            other = times(x_tile, load_tile(second, n, begin + k, outputs, size, size), other, ieee)
    if parts:
        acc *= factor
        other *= factor
    if gated:
        acc = acc * tl.sigmoid(acc) * other
    if biased:
        acc += b
    if adds:
        acc += before
        tl.store(residual + at, acc, mask=written)
        line_at = squares + tl.program_id(0) * rows + m
        tl.store(line_at, tl.sum(tl.where(written, acc * acc, 0.0), 1), mask=m < rows)
        acc *= g
    out += tl.program_id(1) * rows * outputs
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=written)


def most_rows(device: torch.device) -> int:
    """That these layers take on a device."""
    return PLAIN[budget(device)][-1].rows


def batch_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, dtype: torch.dtype, ieee: bool
) -> Tensor:
    """x [B, K] times the weight [N, K] -> [B, N]."""
    out = torch.empty(1, len(x), len(weight), device=x.device, dtype=dtype)
    _launch(out, x, weight, PLAIN, ieee, bias=bias)
    return out[0]


def split_linear(x: Tensor, weight: Tensor, splits: int, *, ieee: bool) -> Tensor:
    """As `batch_linear`, with the terms of each sum split -> [splits, B, N] in float32."""
    out = torch.empty(splits, len(x), len(weight), device=x.device, dtype=torch.float32)
    _launch(out, x, weight, PLAIN, ieee)
    return out


def add_linear(
    x: Tensor, weight: Tensor, residual: Tensor, scale: Tensor, *, ieee: bool
) -> Unscaled:
    """Adds x W^T to the residual [B, N] in float32 -> the RMSNorm of that with weights `scale` [N],
    but for its factor."""
    out = torch.empty(1, len(x), len(weight), device=x.device, dtype=x.dtype)
    parts = triton.cdiv(len(weight), _tile(PLAIN, x).outputs)
    squares = torch.empty(parts, len(x), device=x.device, dtype=torch.float32)
    _launch(out, x, weight, PLAIN, ieee, residual=residual, scale=scale, squares=squares)
    return Unscaled(out[0], squares)


def gated_linear(x: Unscaled, eps: float, weight: Tensor, *, ieee: bool) -> Tensor:
    """x [B, K] times the weight [2N, K] -> SiLU of the first half times the second [B, N]."""
    rows, squares = x
    out = torch.empty(1, len(rows), len(weight) // 2, device=rows.device, dtype=rows.dtype)
    _launch(out, rows, weight, GATED, ieee, squares=squares, eps=eps)
    return out[0]


def _tile(tiles: Mapping[Budget, Sequence[BatchTile]], x: Tensor) -> BatchTile:
    """The first that takes all rows of x."""
    return next(tile for tile in tiles[budget(x.device)] if len(x) <= tile.rows)


def _launch(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    tiles: Mapping[Budget, Sequence[BatchTile]],
    ieee: bool,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    squares: Tensor | None = None,
    eps: float = 0.0,
) -> None:
    (splits, rows, outputs), size = out.shape, x.shape[1]
    bm, bn, bk, warps, stages = _tile(tiles, x)
    piece = triton.cdiv(triton.cdiv(size, bk), splits) * bk
    parts = len(squares) if squares is not None and residual is None else 0
    launch(
        _batch_linear,
        (triton.cdiv(outputs, bn), splits),
        x=x,
        weight=weight,
        bias=weight if bias is None else bias,
        residual=out if residual is None else residual,
        scale=weight if scale is None else scale,
        squares=out if squares is None else squares,
        out=out,
        rows=rows,
        outputs=outputs,
        eps=eps,
        size=size,
        piece=piece,
        parts=parts,
        gated=len(weight) > outputs,
        biased=bias is not None,
        adds=residual is not None,
        ieee=ieee,
        bm=bm,
        bn=bn,
        bk=bk,
        bp=triton.next_power_of_2(max(1, parts)),
        lines=triton.next_power_of_2(triton.cdiv(piece, LINE)),
        line=LINE,
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
