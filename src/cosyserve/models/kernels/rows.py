"""Linear layers over many rows, with what stands before and behind them in the same launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MANY = 2048  # rows from which on tiles are large
COLUMNS = 64  # per turn of a program's loop


@triton.jit
def times(x, w, acc, exact: tl.constexpr):
    """acc + x w^T."""
    if exact:
        x, w = x.to(tl.float32), w.to(tl.float32)
        return tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    return tl.dot(x.to(w.dtype), tl.trans(w), acc)


@triton.jit
def normed(x, scale, shift, k, size, eps, inside):
    """LayerNorm of x [M, K], whose columns outside are zero."""
    mean = tl.sum(x, 1)[:, None] / size
    centred = tl.where(inside, x - mean, 0.0)
    factor = tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / size + eps)
    g = tl.load(scale + k, mask=k < size, other=0.0).to(tl.float32)[None, :]
    b = tl.load(shift + k, mask=k < size, other=0.0).to(tl.float32)[None, :]
    return centred * factor * g + b


@triton.jit(do_not_specialize=["rows"])
def _norm_linear(
    x,
    scale,
    shift,
    weight,
    bias,
    out,
    rows,
    outputs,
    eps,
    size: tl.constexpr,
    biased: tl.constexpr,
    gelu: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    n = tl.program_id(1) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    wide = (k < size)[None, :]
    found = tl.load(
        x + m[:, None] * size + k[None, :], mask=(m < rows)[:, None] & wide, other=0.0
    ).to(tl.float32)
    found = normed(found, scale, shift, k, size, eps, wide)
    at = weight + n[:, None] * size + k[None, :]
    w = tl.load(at, mask=(n < outputs)[:, None] & wide, other=0.0)
    y = times(found, w, tl.zeros((bm, bn), tl.float32), exact)
    if biased:
        y += tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    if gelu:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * outputs + n[None, :], y.to(out.dtype.element_ty), mask=written)


def norm_linear(
    x: Tensor,
    norm: tuple[Tensor, Tensor, float],
    weight: Tensor,
    bias: Tensor | None,
    *,
    gelu: bool,
    exact: bool,
) -> Tensor:
    """LayerNorm (weight, bias, eps), a linear layer and perhaps GELU: x [R, K] -> [R, N]. A program
    holds whole rows, so K should be small."""
    rows, size = x.shape
    outputs = weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    bm, bn = (64, 128) if rows >= MANY else (32, 64)
    _norm_linear[(triton.cdiv(rows, bm), triton.cdiv(outputs, bn))](
        x,
        norm[0],
        norm[1],
        weight,
        weight if bias is None else bias,
        out,
        rows,
        outputs,
        norm[2],
        size,
        bias is not None,
        gelu,
        exact,
        bm,
        bn,
        max(16, triton.next_power_of_2(size)),
        num_warps=8 if rows >= MANY else 4,
        num_stages=2,
    )
    return out


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
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    n = tl.program_id(1) * bn + tl.arange(0, bn)
    acc = tl.zeros((bm, bn), tl.float32)
    for begin in range(0, size, bk):
        k = begin + tl.arange(0, bk)
        wide = (k < size)[None, :]
        at = x + m[:, None] * size + k[None, :]
        found = tl.load(at, mask=(m < rows)[:, None] & wide, other=0.0)
        at = weight + n[:, None] * size + k[None, :]
        w = tl.load(at, mask=(n < outputs)[:, None] & wide, other=0.0)
        acc = times(found, w, acc, exact)
    acc += tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    at = m[:, None] * outputs + n[None, :]
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    if adds:
        acc += tl.load(residual + at, mask=written, other=0.0).to(tl.float32)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=written)


def linear_add(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, *, exact: bool
) -> Tensor:
    """residual + x W^T + bias: x [R, K], residual [R, N] -> [R, N]."""
    rows, size = x.shape
    outputs = weight.shape[0]
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    bm, bn = (64, 64) if rows >= MANY else (32, 32)
    _linear_add[(triton.cdiv(rows, bm), triton.cdiv(outputs, bn))](
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
        COLUMNS,
        num_warps=4,
        num_stages=4,
    )
    return out
