"""`chunk_attention` of rows whose first frames may lie in a memory, or are to be kept there.

Keys and values of a row are those of its line, then its own. Where a row is alone, a program loads
the line before it waits for the launch that computes the others.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.attention.chunk import scores, turn
from cosyserve.models.flow.kernels.linear import Tile, is_lone
from cosyserve.models.flow.kernels.past import past_arguments
from cosyserve.models.flow.packing import LayerPast, Sight
from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import behind_loads, launch
from cosyserve.models.kernels.softmax import add_values

TILES = {Budget.HOPPER: Tile(32, 256, 8, 2), Budget.SMALL: Tile(32, 64, 4, 2)}  # queries, keys
LONE = {Budget.HOPPER: Tile(16, 64, 4, 1)}
HELD = 256  # keys of a line that a program of a lone tile has at once: a multiple of its own


@triton.jit
def _where(j, held, keys, start, count, inner: tl.constexpr):
    """Where keys j of a row lie, of which the first `count` are held."""
    wide = j.to(tl.int64)
    return tl.where(j < count, held + wide * 2 * inner, keys + (start + wide - count) * 3 * inner)


@triton.jit(do_not_specialize=["length", "all_lines"])
def _attend(
    qkv,
    row_starts,
    row_ends,
    chunk,
    memory,
    step,
    lines,
    known,
    wanted,
    out,
    length,
    scale,
    all_lines,
    heads: tl.constexpr,
    width: tl.constexpr,
    places: tl.constexpr,
    ieee: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
    bh: tl.constexpr,
    pdl: tl.constexpr,
):
    inner: tl.constexpr = heads * width
    begin = tl.program_id(0) * bq
    i, d = begin + tl.arange(0, bq), tl.arange(0, bd)
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    size = tl.load(chunk).to(tl.int32)
    starts = tl.load(row_starts + i, mask=i < length, other=length)
    ends = tl.load(row_ends + i, mask=i < length, other=0)
    kept = tl.load(wanted + i, mask=i < length, other=0)
    firsts = (ends > 0) & ((i == starts) | (i == begin))  # of each row here
    at = tl.minimum(tl.min(tl.where(firsts, i, length)), length - 1)
    start, end = tl.load(row_starts + at), tl.load(row_ends + at)
    count, line = tl.load(known + at), tl.load(lines + at).to(tl.int64)
    memory += tl.load(step).to(tl.int64) * all_lines * places * 2 * inner + tl.program_id(1) * width
    if bh:
        held = memory + line * places * 2 * inner
        near, wide = tl.arange(0, bh), (d < width)[None, :]
        source = held + (near * 2 * inner)[:, None] + d[None, :]
        near_k = tl.load(source, mask=(near < count)[:, None] & wide, other=0.0)
        near_v = tl.load(source + inner, mask=(near < count)[:, None] & wide, other=0.0)
    ends = tl.minimum(starts + ((i - starts) // size + 1) * size, ends)
    rows_here, keeps = tl.sum(firsts.to(tl.int32)), tl.max(kept) > 0
    seen = tl.where(starts == start, count + ends - start, 0)
    last = tl.max(seen)
    if pdl:
        gdc_wait()
    queries = qkv + tl.program_id(1) * width
    keys = queries + inner
    here = (i < length)[:, None] & (d < width)[None, :]
    rows = i.to(tl.int64)[:, None] * 3 * inner + d[None, :]
    q = tl.load(queries + rows, mask=here, other=0.0)
    # Finite: a tile of two rows has turns in which some of its queries see nobody.
    top = tl.full((bq,), -1e30, tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    begin = 0
    if bh:  # what is held of the first row, and its own keys: mostly all there is
        j = tl.minimum(count, bh) + tl.arange(0, bk)
        source = _where(j, held, keys, start, count, inner)[:, None] + d[None, :]
        k = tl.load(source, mask=(j < last)[:, None] & wide, other=0.0)
        v = tl.load(source + inner, mask=(j < last)[:, None] & wide, other=0.0)
        if pdl:
            q, k = behind_loads(q), behind_loads(k)
        near_seen = (near < count)[None, :] & (near[None, :] < seen[:, None])
        near_score = tl.where(near_seen, scores(q, near_k, ieee), float("-inf"))
        score = tl.where(j[None, :] < seen[:, None], scores(q, k, ieee), float("-inf"))
        # One sum over all threads, not two: the others are a thread's own.
        high = tl.maximum(score, tl.max(near_score.reshape(bq, bh // bk, bk), 1))
        top = tl.maximum(top, tl.max(high, 1) * scale)
        near_weight = tl.exp2(near_score * scale - top[:, None])
        weight = tl.exp2(score * scale - top[:, None])
        total = tl.sum(weight + tl.sum(near_weight.reshape(bq, bh // bk, bk), 1), 1)
        lasting = tl.full((bq,), 1.0, tl.float32)
        acc = add_values(acc, near_weight, lasting, near_v, ieee)
        acc = add_values(acc, weight, lasting, v, ieee)
        begin = tl.minimum(count, bh) + bk
    for _ in range(rows_here):  # row by row
        held = memory + line * places * 2 * inner
        seen = tl.where(starts == start, count + ends - start, 0)
        last = tl.max(seen)
        for key in range(begin, last, bk):
            j = key + tl.arange(0, bk)
            top, total, acc = turn(
                q,
                _where(j, held, keys, start, count, inner),
                j,
                tl.zeros_like(seen),
                seen,
                seen,
                seen,
                last,
                top,
                total,
                acc,
                scale,
                inner,
                width,
                True,
                False,
                ieee,
                bd,
            )
        # Behind the last row nobody waits for what these load.
        at = tl.minimum(tl.min(tl.where(firsts & (i >= end), i, length)), length - 1)
        start, end = tl.load(row_starts + at), tl.load(row_ends + at)
        count, line = tl.load(known + at), tl.load(lines + at).to(tl.int64)
        begin = 0
    if keeps:
        own = tl.load(lines + i, mask=i < length, other=0).to(tl.int64)
        place = memory + ((own * places + i - starts) * 2 * inner)[:, None] + d[None, :]
        stored = here & ((i >= starts) & (i - starts < kept))[:, None]
        tl.store(place, tl.load(keys + rows, mask=stored), mask=stored)
        tl.store(place + inner, tl.load(keys + inner + rows, mask=stored), mask=stored)
    acc /= tl.maximum(total, 1e-30)[:, None]
    target = out + tl.program_id(1) * width + i.to(tl.int64)[:, None] * inner + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=here)


def prefix_attention(
    qkv: Tensor, sight: Sight, heads: int, past: LayerPast, *, ieee: bool
) -> Tensor:
    """As `attention`, with a past."""
    length, columns = qkv.shape
    width = columns // (3 * heads)
    out = torch.empty(length, heads * width, device=qkv.device, dtype=qkv.dtype)
    cut = budget(qkv.device)
    lone = LONE.get(cut) if is_lone(length) else None
    bq, bk, warps, stages = lone or TILES[cut]
    launch(
        _attend,
        (triton.cdiv(length, bq), heads),
        qkv=qkv,
        row_starts=sight.spans.starts,
        row_ends=sight.spans.ends,
        chunk=sight.chunk,
        **past_arguments(past, qkv),
        out=out,
        length=length,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        ieee=ieee,
        bq=bq,
        bk=bk,
        bd=max(16, triton.next_power_of_2(width)),
        bh=HELD if lone else 0,
        pdl=pdl(qkv),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(qkv),
    )
    return out
