"""Linear layers behind a LayerNorm, over many rows, perhaps with an activation behind them.

The norm's weights are folded into the layer's, so that a product takes rows as they are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import (
    Norm,
    Tile,
    Tiles,
    gelu_linear,
    is_large,
    is_lone,
    tile_for,
)
from cosyserve.models.kernels import Budget, budget, pdl, processors
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import load_tile, load_vector, mean_rstd, times

TILES: dict[Budget, Tiles] = {
    Budget.HOPPER: (Tile(32, 128, 4, 2), Tile(128, 64, 8, 3)),
    Budget.SMALL: (Tile(32, 64, 4, 2), Tile(64, 32, 4, 2)),
}
LONE = {Budget.HOPPER: Tile(16, 256, 8, 2)}
# Where all programs of such tiles run at once, they are quicker than larger ones.
LOW = {Budget.HOPPER: Tile(16, 128, 4, 2)}
WIDE = 256  # columns of x above which WIDE_TILES are used: whole rows must fit
WIDE_TILES: dict[Budget, Tiles] = {
    Budget.HOPPER: (Tile(64, 64, 8, 1), Tile(64, 64, 8, 2)),
    Budget.SMALL: (Tile(32, 32, 8, 1), Tile(32, 32, 4, 2)),
}
NORMALIZE_ROWS = 8  # of a program that only normalizes
SHARED = {Budget.HOPPER: 116_000, Budget.SMALL: 51_000}  # numbers in 16 bits that a processor holds

Act = Literal["none", "gelu", "silu"]


class FoldedLinear(NamedTuple):
    """A linear layer behind a LayerNorm: y = (x W^T - mean sums) / deviation + bias."""

    weight: Tensor  # [N, K], times the norm's
    sums: Tensor  # [N] float32, of the weight's rows
    bias: Tensor  # [N] float32, with the norm's
    rounded_bias: Tensor  # [N] as the weight is
    eps: float


def fold_norm(norm: Norm, weight: Tensor, bias: Tensor | None) -> FoldedLinear:
    scaled = (weight.float() * norm[0].float()).to(weight.dtype)
    shift = weight.float() @ norm[1].float()
    if bias is not None:
        shift = shift + bias.float()
    return FoldedLinear(scaled, scaled.float().sum(1), shift, shift.to(weight.dtype), norm[2])


@triton.jit
def gelu(y, ieee: tl.constexpr):
    if ieee:
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
def _store_rows(
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
    act: tl.constexpr,
    ieee: tl.constexpr,
):
    y = (product - mean * sums) * scaling + bias
    if act == "gelu":
        y = gelu(y, ieee)
    elif act == "silu":
        y *= tl.sigmoid(y)
    written = (m < rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * outputs + n[None, :], y.to(out.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=["rows", "turns"])
def _layer_norm_linear(
    x,
    weight,
    sums,
    bias,
    out,
    rows,
    outputs,
    turns,
    eps,
    size: tl.constexpr,
    act: tl.constexpr,
    ieee: tl.constexpr,
    once: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    first = tl.program_id(1) * turns * bn
    n = first + tl.arange(0, bn)
    k = tl.arange(0, bk)
    nothing = tl.zeros((bm, bn), tl.float32)
    if pdl:
        gdc_launch_dependents()
    if once:
        w = load_tile(weight, n, k, outputs, size, size)
        s, b = load_vector(sums, n, outputs), load_vector(bias, n, outputs)
    if pdl:
        gdc_wait()
    x_tile = load_tile(x, m, k, rows, size, size)
    if once:
        y = times(x_tile, w, nothing, ieee)  # before what it does not need
    mean, scaling = mean_rstd(x_tile.to(tl.float32), size, eps, (k < size)[None, :])
    if once:
        _store_rows(y, mean, scaling, s, b, out, m, n, rows, outputs, act, ieee)
    else:
        for turn in range(turns):
            n = first + turn * bn + tl.arange(0, bn)
            w = load_tile(weight, n, k, outputs, size, size)
            s, b = load_vector(sums, n, outputs), load_vector(bias, n, outputs)
            y = times(x_tile, w, nothing, ieee)
            _store_rows(y, mean, scaling, s, b, out, m, n, rows, outputs, act, ieee)


def layer_norm_linear(x: Tensor, layer: FoldedLinear, *, act: Act, ieee: bool) -> Tensor:
    """LayerNorm, a linear layer and perhaps an activation: x [R, K] -> [R, N]. A program holds
    whole rows, so K should be small: 512 at most."""
    rows, size = x.shape
    if is_large(rows) and act != "silu":
        return large_norm_linear(x, None, layer, act=act, ieee=ieee)
    outputs = len(layer.weight)
    out = torch.empty(rows, outputs, device=x.device, dtype=x.dtype)
    cut = budget(x.device)
    bm, bn, warps, stages = _tile(rows, outputs, size, x.device)
    height, width = triton.cdiv(rows, bm), triton.cdiv(outputs, bn)
    bk = max(16, triton.next_power_of_2(size))
    once = not is_large(rows)
    resident = max(1, SHARED[cut] // (bk * (bm + stages * bn)))
    turns = 1 if once else _turns(height, width, resident * processors(x.device))
    launch(
        _layer_norm_linear,
        (height, triton.cdiv(width, turns)),
        x=x,
        weight=layer.weight,
        sums=layer.sums,
        bias=layer.bias,
        out=out,
        rows=rows,
        outputs=outputs,
        turns=turns,
        eps=layer.eps,
        size=size,
        act=act,
        ieee=ieee,
        once=once,
        bm=bm,
        bn=bn,
        bk=bk,
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out


def large_norm_linear(
    x: Tensor,
    early: Tensor | None,
    layer: FoldedLinear,
    *,
    act: Literal["none", "gelu"],
    ieee: bool,
) -> Tensor:
    """As `layer_norm_linear`, of x - early [K]. The product is the library's: with so many rows it
    gains more than a launch costs."""
    y, weights = _normalized(x, early, layer.eps), (layer.weight, layer.rounded_bias)
    if act == "none":
        return F.linear(y, *weights)
    return F.gelu(F.linear(y, *weights)) if ieee else gelu_linear(y, *weights)


@triton.jit(do_not_specialize=["rows"])
def _normalize(
    x,
    early,
    out,
    rows,
    eps,
    size: tl.constexpr,
    subtracts: tl.constexpr,
    bm: tl.constexpr,
    bk: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    k = tl.arange(0, bk)
    if pdl:
        gdc_launch_dependents()
    if subtracts:
        less = load_vector(early, k, size)
    if pdl:
        gdc_wait()
    x_tile = load_tile(x, m, k, rows, size, size).to(tl.float32)
    wide = (k < size)[None, :]
    if subtracts:
        x_tile -= less
    mean, scaling = mean_rstd(x_tile, size, eps, wide)
    at = out + m[:, None] * size + k[None, :]
    y = ((x_tile - mean) * scaling).to(out.dtype.element_ty)
    tl.store(at, y, mask=(m < rows)[:, None] & wide)


def _normalized(x: Tensor, early: Tensor | None, eps: float) -> Tensor:
    """LayerNorm of x [R, K] - early [K], without weights."""
    rows, size = x.shape
    out = torch.empty_like(x)
    launch(
        _normalize,
        (triton.cdiv(rows, NORMALIZE_ROWS),),
        x=x,
        early=x if early is None else early,
        out=out,
        rows=rows,
        eps=eps,
        size=size,
        subtracts=early is not None,
        bm=NORMALIZE_ROWS,
        bk=max(16, triton.next_power_of_2(size)),
        pdl=pdl(x),
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out


def _tile(rows: int, outputs: int, size: int, device: torch.device) -> Tile:
    cut = budget(device)
    if size > WIDE:
        return tile_for(rows, WIDE_TILES[cut])
    low = LOW.get(cut)
    if low and not is_lone(rows) and low.programs(rows, outputs) <= processors(device):
        return low
    return tile_for(rows, TILES[cut], LONE.get(cut))


def _turns(height: int, width: int, resident: int) -> int:
    """Tiles that a program computes one after another, of `width` beside each other: so many that
    all programs are done soonest, when `resident` of them run at a time."""

    def cost(turns: int) -> int:
        rounds = triton.cdiv(height * triton.cdiv(width, turns), resident)
        return int(rounds * (turns + 1))  # one more for what comes before the first

    return min(range(1, width + 1), key=cost)
