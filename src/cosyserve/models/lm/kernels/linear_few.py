"""Products of a few rows with a weight matrix, at the speed of the memory.

A program loads all of its weights into registers before it waits for the launch that computes its
input: the memory is never idle. Sums are float32. A matrix may be int8 with a scale per line.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch

Matrix = tuple[Tensor, Tensor | None]  # [N, K], and [N] float32 if it is int8

LONG = 2048  # columns
# Outputs and warps of a program, as measured on an H200: plain, gated, with long lines.
TILES = (8, 4), (8, 4), (4, 8)
INT8_TILES = (8, 4), (4, 4), (4, 4)


@triton.jit
def _load_scales(scales, n, outputs, quantized: tl.constexpr):
    """What an int8 weight of each line is multiplied by; 1 for other weights."""
    if quantized:
        return tl.load(scales + n, mask=n < outputs, other=0.0)
    return tl.full(n.shape, 1.0, tl.float32)


@triton.jit
def _rms_norm_linear(
    x,
    norm_weight,
    weight,
    scales,
    bias,
    out,
    size,
    outputs,
    eps,
    rows: tl.constexpr,
    gated: tl.constexpr,
    quantized: tl.constexpr,
    biased: tl.constexpr,
    pdl: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    inside = k < size
    there = (n < outputs)[:, None] & inside[None, :]
    at = weight + n[:, None] * size + k[None, :]
    w = tl.load(at, mask=there, other=0.0)
    if gated:
        up = tl.load(at + outputs * size, mask=there, other=0.0)
    g = tl.load(norm_weight + k, mask=inside, other=0.0).to(tl.float32)
    if biased:
        b = tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)
    unit = _load_scales(scales, n, outputs, quantized)
    if gated:
        up_unit = _load_scales(scales + outputs, n, outputs, quantized)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    for row in tl.static_range(rows):
        x_row = tl.load(x + row * size + k, mask=inside, other=0.0)
        # The norm's factor is the same for all columns: it is applied to the product.
        factor = tl.rsqrt(tl.sum(x_row * x_row, 0) / size + eps)
        x_row *= g
        y = tl.sum(w.to(tl.float32) * x_row[None, :], 1) * (factor * unit)
        if gated:
            other = tl.sum(up.to(tl.float32) * x_row[None, :], 1) * (factor * up_unit)
            y = y * tl.sigmoid(y) * other
        if biased:
            y += b
        tl.store(out + row * outputs + n, y.to(out.dtype.element_ty), mask=n < outputs)


def rms_norm_linear(
    x: Tensor,
    norm_weight: Tensor,
    eps: float,
    matrix: Matrix,
    bias: Tensor | None,
    *,
    gated: bool,
    dtype: torch.dtype,
) -> Tensor:
    """RMSNorm of the residual x [B, K] in float32, times the matrix [N, K] -> [B, N]; gated: it is
    [2N, K] and the result SiLU of its first half times the second."""
    (weight, scales), (rows, size) = matrix, x.shape
    outputs = weight.shape[0] // (2 if gated else 1)
    out = torch.empty(rows, outputs, device=x.device, dtype=dtype)
    bn, bk, warps = _tile(weight, gated)
    launch(
        _rms_norm_linear,
        (triton.cdiv(outputs, bn),),
        x=x,
        norm_weight=norm_weight,
        weight=weight,
        scales=weight if scales is None else scales,
        bias=weight if bias is None else bias,
        out=out,
        size=size,
        outputs=outputs,
        eps=eps,
        rows=rows,
        gated=gated,
        quantized=scales is not None,
        biased=bias is not None,
        pdl=pdl(x),
        bn=bn,
        bk=bk,
        num_warps=warps,
        launch_pdl=pdl(x),
    )
    return out


@triton.jit
def _project(
    x,
    weight,
    scales,
    residual,
    out,
    size,
    outputs,
    quantized: tl.constexpr,
    rows: tl.constexpr,
    pdl: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    rest: tl.constexpr,
):
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    later = bk + tl.arange(0, rest)
    line = weight + n[:, None] * size
    inside = (n < outputs)[:, None]
    w = tl.load(line + k[None, :], mask=inside, other=0.0)
    w_later = tl.load(line + later[None, :], mask=inside & (later < size)[None, :], other=0.0)
    unit = _load_scales(scales, n, outputs, quantized)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    for row in tl.static_range(rows):
        at = row * outputs + n
        before = tl.load(residual + at, mask=n < outputs, other=0.0)
        x_row = tl.load(x + row * size + k).to(tl.float32)
        x_later = tl.load(x + row * size + later, mask=later < size, other=0.0).to(tl.float32)
        y = tl.sum(w.to(tl.float32) * x_row[None, :], 1)
        y += tl.sum(w_later.to(tl.float32) * x_later[None, :], 1)
        tl.store(out + at, before + y * unit, mask=n < outputs)


def project(x: Tensor, matrix: Matrix, residual: Tensor) -> Tensor:
    """residual + x W^T: x [B, K], matrix [N, K], residual [B, N] in float32 -> [B, N]. Lines are
    held in two parts, each a power of two: in one, two fifths of the LM's would be padding."""
    (weight, scales), (rows, size) = matrix, x.shape
    outputs = weight.shape[0]
    out = torch.empty_like(residual)
    bn, bk, warps = _tile(weight)
    bk //= 2
    launch(
        _project,
        (triton.cdiv(outputs, bn),),
        x=x,
        weight=weight,
        scales=weight if scales is None else scales,
        residual=residual,
        out=out,
        size=size,
        outputs=outputs,
        quantized=scales is not None,
        rows=rows,
        pdl=pdl(x),
        bn=bn,
        bk=bk,
        rest=triton.next_power_of_2(size - bk),
        num_warps=warps,
        launch_pdl=pdl(x),
    )
    return out


@triton.jit
def _merge_project(
    values,
    stats,
    weight,
    scales,
    residual,
    out,
    heads,
    outputs,
    quantized: tl.constexpr,
    width: tl.constexpr,
    splits: tl.constexpr,
    rows: tl.constexpr,
    pdl: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    n = tl.program_id(0) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    size = heads * width
    inside = k < size
    there = (n < outputs)[:, None] & inside[None, :]
    w = tl.load(weight + n[:, None] * size + k[None, :], mask=there, other=0.0)
    unit = _load_scales(scales, n, outputs, quantized)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    for row in tl.static_range(rows):
        at = row * outputs + n
        before = tl.load(residual + at, mask=n < outputs, other=0.0)
        line = (row * heads + k // width) * splits
        top = tl.load(stats + 2 * line, mask=inside, other=0.0)
        for split in tl.static_range(1, splits):
            top = tl.maximum(top, tl.load(stats + 2 * (line + split), mask=inside, other=0.0))
        total = tl.zeros((bk,), tl.float32)
        x_row = tl.zeros((bk,), tl.float32)
        for split in tl.static_range(splits):
            share = tl.exp(tl.load(stats + 2 * (line + split), mask=inside, other=0.0) - top)
            total += share * tl.load(stats + 2 * (line + split) + 1, mask=inside, other=1.0)
            part = values + (line + split) * width + k % width
            x_row += share * tl.load(part, mask=inside, other=0.0)
        x_row /= total
        y = before + tl.sum(w.to(tl.float32) * x_row[None, :], 1) * unit
        tl.store(out + at, y, mask=n < outputs)


def merge_project(values: Tensor, stats: Tensor, matrix: Matrix, residual: Tensor) -> Tensor:
    """As `project`, of an attention whose keys were split: what `decode_attention.attend` gives."""
    weight, scales = matrix
    rows, heads, splits, width = values.shape
    outputs = weight.shape[0]
    out = torch.empty_like(residual)
    bn, bk, warps = _tile(weight)
    launch(
        _merge_project,
        (triton.cdiv(outputs, bn),),
        values=values,
        stats=stats,
        weight=weight,
        scales=weight if scales is None else scales,
        residual=residual,
        out=out,
        heads=heads,
        outputs=outputs,
        quantized=scales is not None,
        width=width,
        splits=splits,
        rows=rows,
        pdl=pdl(values),
        bn=bn,
        bk=bk,
        num_warps=warps,
        launch_pdl=pdl(values),
    )
    return out


def _tile(weight: Tensor, gated: bool = False) -> tuple[int, int, int]:
    """Outputs, columns and warps of a program, which holds whole lines."""
    plain_tile, gated_tile, long_tile = INT8_TILES if weight.dtype is torch.int8 else TILES
    bk = triton.next_power_of_2(weight.shape[1])
    bn, warps = gated_tile if gated else long_tile if bk > LONG else plain_tile
    return bn, bk, warps
