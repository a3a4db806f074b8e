"""Turns the channels of the first head by their frame's position in its row, where they
stand."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.packing import Prefixes, RowSpans
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch

FRAMES = 16  # of a program


@triton.jit(do_not_specialize=["length"])
def _rotate_first_head(
    qkv,
    cos,
    sin,
    row_starts,
    known,
    length,
    inner: tl.constexpr,
    pairs: tl.constexpr,
    prefixed: tl.constexpr,
    bt: tl.constexpr,
    bp: tl.constexpr,
    pdl: tl.constexpr,
):
    t = tl.program_id(0) * bt + tl.arange(0, bt)[:, None]
    pair = tl.arange(0, bp)[None, :]
    inside = (t < length) & (pair < pairs)
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    at = t - tl.load(row_starts + t, mask=t < length, other=length)
    inside = inside & (at >= 0)
    if prefixed:
        at += tl.load(known + t, mask=t < length, other=0)
    c = tl.load(cos + at * pairs + pair, mask=inside, other=1.0)
    s = tl.load(sin + at * pairs + pair, mask=inside, other=0.0)
    if pdl:
        gdc_wait()
    for part in tl.static_range(2):  # queries, then keys
        where = qkv + t.to(tl.int64) * 3 * inner + part * inner + 2 * pair
        even = tl.load(where, mask=inside, other=0.0).to(tl.float32)
        odd = tl.load(where + 1, mask=inside, other=0.0).to(tl.float32)
        tl.store(where, (even * c - odd * s).to(qkv.dtype.element_ty), mask=inside)
        tl.store(where + 1, (odd * c + even * s).to(qkv.dtype.element_ty), mask=inside)


def rotate_first_head(
    qkv: Tensor, spans: RowSpans, prefixes: Prefixes | None, rotary: tuple[Tensor, Tensor]
) -> None:
    """qkv [T, 3 * heads * D] of packed rows, cosines and sines [longest row or more, D / 2] float32
    of all positions, those of prefixes included. On a GPU a launch of torch's must lie between the
    writing of spans and this."""
    length, columns = qkv.shape
    cos, sin = rotary
    launch(
        _rotate_first_head,
        (triton.cdiv(length, FRAMES),),
        qkv=qkv,
        cos=cos,
        sin=sin,
        row_starts=spans.starts,
        known=prefixes.known if prefixes else spans.starts,
        length=length,
        inner=columns // 3,
        pairs=cos.shape[1],
        prefixed=prefixes is not None,
        bt=FRAMES,
        bp=triton.next_power_of_2(cos.shape[1]),
        pdl=pdl(qkv),
        num_warps=4,
        launch_pdl=pdl(qkv),
    )
