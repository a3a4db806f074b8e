"""Embedding, norm and gate between the matrix products of larger batches, one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch

BLOCK = 1024


@triton.jit
def _embed(ids, table, out, stride, size, pdl: tl.constexpr, block: tl.constexpr):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    k = tl.arange(0, block)
    line = tl.load(ids + row * stride).to(tl.int64) * size
    embedding = tl.load(table + line + k, mask=k < size, other=0.0)
    tl.store(out + row * size + k, embedding.to(tl.float32), mask=k < size)


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Lines ids [B] of the table [V, H] -> float32 [B, H]."""
    size = table.shape[1]
    out = torch.empty(len(ids), size, device=table.device, dtype=torch.float32)
    launch(
        _embed,
        (len(ids),),
        ids=ids,
        table=table,
        out=out,
        stride=ids.stride(0),
        size=size,
        pdl=pdl(table),
        block=triton.next_power_of_2(size),
        num_warps=4,
        launch_pdl=pdl(table),
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _add_norm(
    x,
    delta,
    scale,
    out,
    rows,
    size,
    eps,
    parts: tl.constexpr,
    pdl: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0)
    k = tl.arange(0, block)
    inside = k < size
    at = row * size + k
    g = tl.load(scale + k, mask=inside, other=0.0).to(tl.float32)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    x_row = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(parts):
        x_row += tl.load(delta + part * rows * size + at, mask=inside, other=0.0).to(tl.float32)
    if parts:
        tl.store(x + at, x_row.to(x.dtype.element_ty), mask=inside)
    factor = tl.rsqrt(tl.sum(x_row * x_row, 0) / size + eps)
    tl.store(out + at, (x_row * factor * g).to(out.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor, delta: Tensor | None, scale: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    """Adds the parts of `delta` [parts, B, H] to the residual x [B, H] in place -> its RMSNorm, in
    the given type."""
    rows, size = x.shape
    out = torch.empty(rows, size, device=x.device, dtype=dtype)
    launch(
        _add_norm,
        (rows,),
        x=x,
        delta=x if delta is None else delta,
        scale=scale,
        out=out,
        rows=rows,
        size=size,
        eps=eps,
        parts=0 if delta is None else len(delta),
        pdl=pdl(x),
        block=triton.next_power_of_2(size),
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out


@triton.jit
def _gate(x, out, size, pdl: tl.constexpr, block: tl.constexpr):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    k = tl.program_id(1) * block + tl.arange(0, block)
    inside = k < size
    at = x + row * 2 * size + k
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(out + row * size + k, y.to(out.dtype.element_ty), mask=inside)


def gate(x: Tensor) -> Tensor:
    """SiLU of the first half of each row, times the second: [B, 2N] -> [B, N]."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = torch.empty(rows, size, device=x.device, dtype=x.dtype)
    launch(
        _gate,
        (rows, triton.cdiv(size, BLOCK)),
        x=x,
        out=out,
        size=size,
        pdl=pdl(x),
        block=BLOCK,
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out
