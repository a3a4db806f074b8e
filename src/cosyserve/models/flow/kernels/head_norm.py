"""LayerNorm of each head of queries and keys, where they stand."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import mean_rstd

ROWS = 16  # heads of frames of a program


@triton.jit(do_not_specialize=["rows"])
def _norm_heads(
    qkv,
    scale,
    shift,
    rows,
    eps,
    heads: tl.constexpr,
    width: tl.constexpr,
    bm: tl.constexpr,
    bd: tl.constexpr,
    pdl: tl.constexpr,
):
    row = tl.program_id(0) * bm + tl.arange(0, bm)[:, None]
    d = tl.arange(0, bd)[None, :]
    frame, head = row // (2 * heads), row % (2 * heads)  # queries first, then keys
    wide = d < width
    inside = (row < rows) & wide
    part = head // heads * width + d
    if pdl:
        gdc_launch_dependents()
    factor = tl.load(scale + part, mask=inside, other=0.0).to(tl.float32)
    addend = tl.load(shift + part, mask=inside, other=0.0).to(tl.float32)
    if pdl:
        gdc_wait()
    at = qkv + frame.to(tl.int64) * (3 * heads * width) + head * width + d
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    mean, scaling = mean_rstd(x, width, eps, wide)
    y = (x - mean) * scaling * factor + addend
    tl.store(at, y.to(qkv.dtype.element_ty), mask=inside)


def norm_heads(qkv: Tensor, scale: Tensor, shift: Tensor, heads: int, eps: float) -> None:
    """qkv [T, 3 * heads * D]; scale and shift [2, D]: of queries, of keys."""
    width = scale.shape[1]
    rows = 2 * heads * len(qkv)
    launch(
        _norm_heads,
        (triton.cdiv(rows, ROWS),),
        qkv=qkv,
        scale=scale,
        shift=shift,
        rows=rows,
        eps=eps,
        heads=heads,
        width=width,
        bm=ROWS,
        bd=triton.next_power_of_2(width),
        pdl=pdl(qkv),
        num_warps=4,
        launch_pdl=pdl(qkv),
    )
