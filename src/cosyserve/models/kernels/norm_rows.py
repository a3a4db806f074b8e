"""Linear layers behind a LayerNorm, over many rows, perhaps with GELU behind them.

The norm's weights are folded into the layer's, so that a product takes rows as they are.
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
from cosyserve.models.kernels.rows import (
    Norm,
    Tile,
    fitting,
    many,
    numbers,
    spread,
    tile,
    times,
)

TILES = Tile(32, 128, 8, 2), Tile(64, 128, 8, 2), Tile(128, 64, 8, 3)
PROGRAMS = 128  # that keep a large GPU busy


class Normed(NamedTuple):
    """A linear layer behind a LayerNorm: y = (x W^T - mean sums) / deviation + bias."""

    weight: Tensor  # [N, K], times the norm's
    sums: Tensor  # [N] float32, of the weight's rows
    bias: Tensor  # [N] float32, with the norm's
    eps: float


def normed(norm: Norm, weight: Tensor, bias: Tensor | None) -> Normed:
    scaled = (weight.float() * norm[0].float()).to(weight.dtype)
    shift = weight.float() @ norm[1].float()
    return Normed(
        scaled, scaled.float().sum(1), shift if bias is None else shift + bias.float(), norm[2]
    )


@triton.jit
def gelu_of(y, exact: tl.constexpr):
    if exact:
        return 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    # erf as a polynomial that is 1 from 4.2 on: 1e-4 at most beside the truth, at half the price.
    near = tl.minimum(tl.maximum(y, -4.2), 4.2)
    s = near * near
    p = -1.80353019e-09 * s + 1.58828377e-07
    p = p * s - 6.07590577e-06
    p = p * s + 1.33781978e-04
    p = p * s - 1.90131937e-03
    p = p * s + 1.85964756e-02
    p = p * s - 1.31056434e-01
    p = p * s + 7.96931764e-01
    half = 0.5 * y
    return half + half * (near * p)


@triton.jit
def _rows_of(
    product,
    mean,
    scaling,
    sums,
    bias,
    out,
    m,
    n,
    rows,
    outputs,
    gelu: tl.constexpr,
    exact: tl.constexpr,
):
    y = (product - mean * sums) * scaling + bias
    if gelu:
        y = gelu_of(y, exact)
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * outputs + n[None, :], y.to(out.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=["rows"])
def _norm_linear(
    x,
    weight,
    sums,
    bias,
    out,
    rows,
    outputs,
    eps,
    size: tl.constexpr,
    gelu: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    turns: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    first = tl.program_id(1) * turns * bn
    n = first + tl.arange(0, bn)
    k = tl.arange(0, bk)
    nothing = tl.zeros((bm, bn), tl.float32)
    if pdl:
        gdc_launch_dependents()
    if turns == 1:
        w = tile(weight, n, k, outputs, size, size)
        s, b = numbers(sums, n, outputs), numbers(bias, n, outputs)
    if pdl:
        gdc_wait()
    found = tile(x, m, k, rows, size, size)
    mean, scaling = spread(found.to(tl.float32), size, eps, (k < size)[None, :])
    if turns == 1:
        y = times(found, w, nothing, exact)
        _rows_of(y, mean, scaling, s, b, out, m, n, rows, outputs, gelu, exact)
    else:
        for turn in range(turns):
            n = first + turn * bn + tl.arange(0, bn)
            w = tile(weight, n, k, outputs, size, size)
            s, b = numbers(sums, n, outputs), numbers(bias, n, outputs)
            y = times(found, w, nothing, exact)
            _rows_of(y, mean, scaling, s, b, out, m, n, rows, outputs, gelu, exact)


def norm_linear(x: Tensor, layer: Normed, *, gelu: bool, exact: bool) -> Tensor:
    """LayerNorm, a linear layer and perhaps GELU: x [R, K] -> [R, N]. A program holds whole rows,
    so K should be small."""
    rows, size = x.shape
    outputs = len(layer.weight)
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    bm, bn, warps, stages = fitting(rows, TILES)
    height, width = triton.cdiv(rows, bm), triton.cdiv(outputs, bn)
    turns = triton.cdiv(width, triton.cdiv(PROGRAMS, height)) if many(rows) else 1
    launch(
        _norm_linear,
        (height, triton.cdiv(width, turns)),
        x,
        layer.weight,
        layer.sums,
        layer.bias,
        out,
        rows,
        outputs,
        layer.eps,
        size,
        gelu,
        exact,
        bm,
        bn,
        max(16, triton.next_power_of_2(size)),
        turns,
        pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out
