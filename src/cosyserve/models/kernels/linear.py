"""Products of a few rows with a weight matrix, which is read once, at the speed of the memory.

The residual stream comes as parts [P, B, H] in float32 that are to be added up: a product over
many columns is cut into P pieces, one per program, and whoever reads it next adds them. So no
sum depends on which program comes first. B is at most ROWS.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # of a tile, the fewest that a matrix unit takes
OUTPUTS = 16  # per program
COLUMNS = 128  # per turn of a program's loop
PIECES_OF_ATTENTION, PIECES_OF_MLP = 2, 4  # programs that share a product's columns
WARPS, STAGES = 4, 3  # of a program; more stages would leave an SM fewer programs


@triton.jit
def _times(x, w, acc, exact: tl.constexpr):
    if exact:
        return tl.dot(x, tl.trans(w.to(tl.float32)), acc, input_precision="ieee")
    return tl.dot(x.to(w.dtype), tl.trans(w), acc)


@triton.jit
def _sum_of_parts(parts, stride, at, inside, count: tl.constexpr):
    x = tl.load(parts + at, mask=inside, other=0.0)
    for part in tl.static_range(1, count):
        x += tl.load(parts + part * stride + at, mask=inside, other=0.0)
    return x


@triton.jit(do_not_specialize=["rows"])
def _norm_linear(
    parts,
    scale,
    weight,
    bias,
    out,
    rows,
    size,
    outputs,
    eps,
    count: tl.constexpr,
    gated: tl.constexpr,
    biased: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    m = tl.arange(0, bm)
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    acc = tl.zeros((bm, bn), tl.float32)
    up = tl.zeros((bm, bn), tl.float32)
    squares = tl.zeros((bm,), tl.float32)
    for begin in range(0, size, bk):
        k = begin + tl.arange(0, bk)
        inside = (m[:, None] < rows) & (k[None, :] < size)
        x = _sum_of_parts(parts, rows * size, m[:, None] * size + k[None, :], inside, count)
        squares += tl.sum(x * x, 1)
        # The norm's factor is the same for all columns: it is applied to the product.
        x *= tl.load(scale + k, mask=k < size, other=0.0).to(tl.float32)[None, :]
        there = (n[:, None] < outputs) & (k[None, :] < size)
        at = weight + n[:, None] * size + k[None, :]
        acc = _times(x, tl.load(at, mask=there, other=0.0), acc, exact)
        if gated:
            up = _times(x, tl.load(at + outputs * size, mask=there, other=0.0), up, exact)
    factor = tl.rsqrt(squares / size + eps)[:, None]
    y = acc * factor
    if biased:
        y += tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    if gated:
        y = y * tl.sigmoid(y) * (up * factor)
    written = (m[:, None] < rows) & (n[None, :] < outputs)
    tl.store(out + m[:, None] * outputs + n[None, :], y.to(out.dtype.element_ty), mask=written)


def norm_linear(
    parts: Tensor,
    scale: Tensor,
    eps: float,
    weight: Tensor,
    bias: Tensor | None,
    *,
    gated: bool,
    dtype: torch.dtype,
    exact: bool,
) -> Tensor:
    """RMSNorm of the residual, then a linear layer: [B, N], or [B, N / 2] if it is gated: then the
    weight's first half is the gate of its second, with SiLU."""
    count, rows, size = parts.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    out = torch.empty(rows, outputs, device=parts.device, dtype=dtype)
    _norm_linear[(triton.cdiv(outputs, OUTPUTS),)](
        parts,
        scale,
        weight,
        weight if bias is None else bias,
        out,
        rows,
        size,
        outputs,
        eps,
        count,
        gated,
        bias is not None,
        exact,
        ROWS,
        OUTPUTS,
        COLUMNS,
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _project(
    x,
    weight,
    residual,
    out,
    rows,
    size,
    outputs,
    piece,
    count: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    m = tl.arange(0, bm)
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    part = tl.program_id(1)
    acc = tl.zeros((bm, bn), tl.float32)
    for begin in range(part * piece, min(size, (part + 1) * piece), bk):
        k = begin + tl.arange(0, bk)
        inside = (m[:, None] < rows) & (k[None, :] < size)
        a = tl.load(x + m[:, None] * size + k[None, :], mask=inside, other=0.0)
        there = (n[:, None] < outputs) & (k[None, :] < size)
        w = tl.load(weight + n[:, None] * size + k[None, :], mask=there, other=0.0)
        acc = _times(a.to(tl.float32) if exact else a, w, acc, exact)
    _add_and_store(acc, residual, out, rows, outputs, m, n, part, count)


@triton.jit
def _add_and_store(acc, residual, out, rows, outputs, m, n, part, count: tl.constexpr):
    """The first part also carries what was there before."""
    at = m[:, None] * outputs + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < outputs)
    if part == 0:
        acc += _sum_of_parts(residual, rows * outputs, at, inside, count)
    tl.store(out + part * rows * outputs + at, acc, mask=inside)


def project(x: Tensor, weight: Tensor, residual: Tensor, *, exact: bool) -> Tensor:
    """residual + x W^T, in parts: x [B, K], weight [N, K], residual [P, B, N] -> [P', B, N]."""
    count, rows, outputs = residual.shape
    size = x.shape[1]
    turns = triton.cdiv(triton.cdiv(size, COLUMNS), PIECES_OF_MLP)
    pieces = triton.cdiv(size, turns * COLUMNS)
    out = torch.empty(pieces, rows, outputs, device=x.device, dtype=torch.float32)
    _project[(triton.cdiv(outputs, OUTPUTS), pieces)](
        x,
        weight,
        residual,
        out,
        rows,
        size,
        outputs,
        turns * COLUMNS,
        count,
        exact,
        ROWS,
        OUTPUTS,
        COLUMNS,
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _merge_project(
    values,
    stats,
    weight,
    residual,
    out,
    rows,
    heads,
    outputs,
    piece,
    splits: tl.constexpr,
    count: tl.constexpr,
    exact: tl.constexpr,
    width: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    m = tl.arange(0, bm)
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    part = tl.program_id(1)
    d = tl.arange(0, bk)
    acc = tl.zeros((bm, bn), tl.float32)
    row = m < rows
    for head in range(part * piece, min(heads, (part + 1) * piece)):
        line = (m * heads + head) * splits
        top = tl.load(stats + 2 * line, mask=row, other=0.0)
        for s in tl.static_range(1, splits):
            top = tl.maximum(top, tl.load(stats + 2 * (line + s), mask=row, other=0.0))
        total = tl.zeros((bm,), tl.float32)
        x = tl.zeros((bm, bk), tl.float32)
        inside = row[:, None] & (d[None, :] < width)
        for s in tl.static_range(splits):
            share = tl.exp(tl.load(stats + 2 * (line + s), mask=row, other=0.0) - top)
            total += share * tl.load(stats + 2 * (line + s) + 1, mask=row, other=1.0)
            at = values + (line + s)[:, None] * width + d[None, :]
            x += share[:, None] * tl.load(at, mask=inside, other=0.0)
        x /= total[:, None]
        there = (n[:, None] < outputs) & (d[None, :] < width)
        at = weight + n[:, None] * (heads * width) + head * width + d[None, :]
        acc = _times(x, tl.load(at, mask=there, other=0.0), acc, exact)
    _add_and_store(acc, residual, out, rows, outputs, m, n, part, count)


def merge_project(
    values: Tensor, stats: Tensor, weight: Tensor, residual: Tensor, *, exact: bool
) -> Tensor:
    """The same, of an attention whose keys were split: what `attention.attend` gives."""
    rows, heads, splits, width = values.shape
    count, _, outputs = residual.shape
    piece = triton.cdiv(heads, PIECES_OF_ATTENTION)
    pieces = triton.cdiv(heads, piece)
    out = torch.empty(pieces, rows, outputs, device=values.device, dtype=torch.float32)
    _merge_project[(triton.cdiv(outputs, OUTPUTS), pieces)](
        values,
        stats,
        weight,
        residual,
        out,
        rows,
        heads,
        outputs,
        piece,
        splits,
        count,
        exact,
        width,
        ROWS,
        OUTPUTS,
        max(16, triton.next_power_of_2(width)),
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out
