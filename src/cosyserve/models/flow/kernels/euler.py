"""An Euler step of the flow: guidance, the step, and the next estimate's input."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch

FRAMES = 8  # of a program


@triton.jit(do_not_specialize=["length"])
def _euler(
    v,
    x,
    rows,
    strides,
    step,
    length,
    guidance,
    mel: tl.constexpr,
    columns: tl.constexpr,
    guided: tl.constexpr,
    bt: tl.constexpr,
    bc: tl.constexpr,
    pdl: tl.constexpr,
):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    t, c = tl.program_id(0) * bt + tl.arange(0, bt)[:, None], tl.arange(0, bc)[None, :]
    inside = (t < length) & (c < mel)
    free = length + t  # the same frame without conditions
    slope = tl.load(v + t * mel + c, mask=inside, other=0.0).to(tl.float32)
    if guided:
        other = tl.load(v + free * mel + c, mask=inside, other=0.0).to(tl.float32)
        slope = (1.0 + guidance) * slope - guidance * other
    at = x + t * mel + c
    moved = tl.load(at, mask=inside, other=0.0)
    moved += tl.load(strides + tl.load(step)) * slope
    tl.store(at, moved, mask=inside)
    rounded = moved.to(rows.dtype.element_ty)
    tl.store(rows + t * columns + c, rounded, mask=inside)
    if guided:
        tl.store(rows + free * columns + c, rounded, mask=inside)


@triton.jit
def _count(step, steps, pdl: tl.constexpr):
    if pdl:
        gdc_wait()  # none may begin early behind it: launches of the next step read its number
    tl.store(step, (tl.load(step) + 1) % steps)


def euler(
    v: Tensor, x: Tensor, rows: Tensor, strides: Tensor, step: Tensor, guidance: float
) -> None:
    """Moves x [T, mel] in float32 by stride `step` [1] along the velocity v [2T, mel], of which the
    second half is without conditions (no guidance: v [T, mel]), and puts it into the first columns
    of rows [2T, columns]. `step` becomes the next one, behind the last the first."""
    length, mel = x.shape
    launch(
        _euler,
        (triton.cdiv(length, FRAMES),),
        v=v,
        x=x,
        rows=rows,
        strides=strides,
        step=step,
        length=length,
        guidance=guidance,
        mel=mel,
        columns=rows.shape[1],
        guided=guidance > 0,
        bt=FRAMES,
        bc=triton.next_power_of_2(mel),
        pdl=pdl(x),
        num_warps=4,
        launch_pdl=pdl(x),
    )
    launch(_count, (1,), step=step, steps=len(strides), pdl=pdl(x), num_warps=1, launch_pdl=pdl(x))
