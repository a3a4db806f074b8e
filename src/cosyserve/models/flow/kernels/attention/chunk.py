"""Attention of packed rows with the chunk mask: a frame sees all of its row up to the end of its
own chunk, but for what is hidden from it. The mask is computed, not read. (One loop with masks is
quicker than two, one of them without, where a pack is small.)"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import Tile
from cosyserve.models.flow.packing import Sight
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.softmax import add_values, weigh_base2

TILE = Tile(32, 128, 4, 2)  # queries, keys


@triton.jit
def scores(q, k, ieee: tl.constexpr):
    """Queries [M, D] times keys [K, D] -> [M, K]."""
    if ieee:
        return tl.dot(q.to(tl.float32), tl.trans(k.to(tl.float32)), input_precision="ieee")
    return tl.dot(q, tl.trans(k))


@triton.jit
def turn(
    q,
    where,
    j,
    starts,
    ends,
    hidden_starts,
    hidden_ends,
    last,
    top,
    total,
    acc,
    scale,
    inner: tl.constexpr,
    width: tl.constexpr,
    masked: tl.constexpr,
    hides: tl.constexpr,
    ieee: tl.constexpr,
    bd: tl.constexpr,
):
    """One turn of the softmax, over keys j, which lie at `where`; unless masked, all queries see
    them. None is seen from `last` on."""
    d = tl.arange(0, bd)
    where = where[:, None] + d[None, :]
    inside = (d < width)[None, :]
    if masked:
        inside = inside & (j < last)[:, None]
    k = tl.load(where, mask=inside, other=0.0)
    v = tl.load(where + inner, mask=inside, other=0.0)
    score = scores(q, k, ieee)
    if masked:
        seen = (j[None, :] >= starts[:, None]) & (j[None, :] < ends[:, None])
        if hides:
            seen &= (j[None, :] < hidden_starts[:, None]) | (j[None, :] >= hidden_ends[:, None])
        score = tl.where(seen, score, float("-inf"))
    weight, fade, top, total = weigh_base2(score, scale, top, total)
    return top, total, add_values(acc, weight, fade, v, ieee)


@triton.jit(do_not_specialize=["length"])
def _attend(
    qkv,
    row_starts,
    row_ends,
    from_hidden,
    to_hidden,
    chunk,
    out,
    length,
    scale,
    heads: tl.constexpr,
    width: tl.constexpr,
    hides: tl.constexpr,
    ieee: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
    pdl: tl.constexpr,
):
    inner: tl.constexpr = heads * width
    i = tl.program_id(0) * bq + tl.arange(0, bq)
    d = tl.arange(0, bd)
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    step = tl.load(chunk).to(tl.int32)
    starts = tl.load(row_starts + i, mask=i < length, other=length)
    ends = tl.load(row_ends + i, mask=i < length, other=0)
    hidden_starts, hidden_ends = ends, ends
    if hides:
        hidden_starts = tl.load(from_hidden + i, mask=i < length, other=1 << 30)
        hidden_ends = tl.load(to_hidden + i, mask=i < length, other=0)
    if pdl:
        gdc_wait()
    line = qkv + tl.program_id(1) * width
    here = (i < length)[:, None] & (d < width)[None, :]
    wide = i.to(tl.int64)[:, None]
    q = tl.load(line + wide * 3 * inner + d[None, :], mask=here, other=0.0)
    ends = tl.minimum(starts + ((i - starts) // step + 1) * step, ends)
    # Finite: a tile of two rows has turns in which some of its queries see nobody.
    top = tl.full((bq,), -1e30, tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    keys = line + inner
    first, last = tl.min(starts), tl.max(ends)
    for at in range(first, last, bk):
        j = at + tl.arange(0, bk)
        top, total, acc = turn(
            q,
            keys + j.to(tl.int64) * 3 * inner,
            j,
            starts,
            ends,
            hidden_starts,
            hidden_ends,
            last,
            top,
            total,
            acc,
            scale,
            inner,
            width,
            True,
            hides,
            ieee,
            bd,
        )
    acc /= tl.maximum(total, 1e-30)[:, None]
    target = out + tl.program_id(1) * width
    tl.store(target + wide * inner + d[None, :], acc.to(out.dtype.element_ty), mask=here)


def chunk_attention(qkv: Tensor, sight: Sight, heads: int, *, ieee: bool) -> Tensor:
    """As `attention`, without a past."""
    spans, hidden = sight.spans, sight.hidden
    length, columns = qkv.shape
    width = columns // (3 * heads)
    out = torch.empty(length, heads * width, device=qkv.device, dtype=qkv.dtype)
    bq, bk, warps, stages = TILE
    launch(
        _attend,
        (triton.cdiv(length, bq), heads),
        qkv=qkv,
        row_starts=spans.starts,
        row_ends=spans.ends,
        from_hidden=(hidden or spans).starts,
        to_hidden=(hidden or spans).ends,
        chunk=sight.chunk,
        out=out,
        length=length,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        hides=hidden is not None,
        ieee=ieee,
        bq=bq,
        bk=bk,
        bd=max(16, triton.next_power_of_2(width)),
        pdl=pdl(qkv),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(qkv),
    )
    return out
