"""A residual, LayerNorm and what the time makes of them, in one launch."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import load_tile, load_vector, mean_rstd

EPS = 1e-6
ROWS = 4  # of a program


class TimeTables(NamedTuple):
    """What each Euler step multiplies normalized rows by, and adds: [steps, C] float32."""

    scale: Tensor
    shift: Tensor


@triton.jit(do_not_specialize=["rows"])
def _norm_modulate(
    x,
    y,
    gate,
    scale,
    shift,
    step,
    out,
    rows,
    eps,
    size: tl.constexpr,
    adds: tl.constexpr,
    bm: tl.constexpr,
    bk: tl.constexpr,
    pdl: tl.constexpr,
):
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    k = tl.arange(0, bk)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    line = tl.load(step) * size
    wide = (k < size)[None, :]
    inside = (m < rows)[:, None] & wide
    at = m[:, None] * size + k[None, :]
    held = load_tile(x, m, k, rows, size, size).to(tl.float32)
    if adds:
        more = load_tile(y, m, k, rows, size, size).to(tl.float32)
        held += load_vector(gate + line, k, size) * more
        tl.store(x + at, held.to(x.dtype.element_ty), mask=inside)
    mean, scaling = mean_rstd(held, size, eps, wide)
    normal = (held - mean) * scaling
    moved = normal * load_vector(scale + line, k, size) + load_vector(shift + line, k, size)
    tl.store(out + at, moved.to(out.dtype.element_ty), mask=inside)


def norm_modulate(
    x: Tensor, added: tuple[Tensor, Tensor] | None, tables: TimeTables, step: Tensor
) -> Tensor:
    """LayerNorm of x [R, C], scaled and shifted by line `step` [1] of the tables. First, `added` y
    [R, C] times its gate (a table, too) is added to x where it stands."""
    rows, size = x.shape
    y, gate = added or (x, tables.scale)
    out = torch.empty_like(x)
    launch(
        _norm_modulate,
        (triton.cdiv(rows, ROWS),),
        x=x,
        y=y,
        gate=gate,
        scale=tables.scale,
        shift=tables.shift,
        step=step,
        out=out,
        rows=rows,
        eps=EPS,
        size=size,
        adds=added is not None,
        bm=ROWS,
        bk=max(16, triton.next_power_of_2(size)),
        pdl=pdl(x),
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out
