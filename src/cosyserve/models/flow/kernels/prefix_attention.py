"""`chunk_attention` of rows whose first frames may lie in a memory, or are to be kept there.

Keys and values of a row are those of its line, then its own.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.chunk_attention import turn
from cosyserve.models.flow.kernels.linear import Tile, Tiles, tile_for
from cosyserve.models.flow.kernels.past import past_arguments
from cosyserve.models.flow.packing import LayerPast, Sight
from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import launch, prefetch_l2

TILES: dict[Budget, Tiles] = {  # queries, keys
    Budget.HOPPER: (Tile(32, 256, 8, 2), Tile(32, 128, 4, 2)),
    Budget.SMALL: (Tile(32, 64, 4, 2),),
}


@triton.jit
def _row_turn(
    q,
    keys,
    held,
    start,
    count,
    at,
    ends,
    last,
    top,
    total,
    acc,
    scale,
    inner: tl.constexpr,
    width: tl.constexpr,
    ieee: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
):
    """`turn` over the keys of one row from `at` on, of which the first `count` are held."""
    j = at + tl.arange(0, bk)
    wide = j.to(tl.int64)
    where = tl.where(j < count, held + wide * 2 * inner, keys + (start + wide - count) * 3 * inner)
    return turn(
        q,
        where,
        j,
        tl.zeros_like(ends),
        ends,
        ends,
        ends,
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


@triton.jit
def _fetch_soon(held, count, inner: tl.constexpr, most: tl.constexpr):
    """Has keys and values of a line come nearer."""
    at = held + tl.minimum(tl.arange(0, most), tl.maximum(count - 1, 0)) * 2 * inner
    prefetch_l2(at)
    prefetch_l2(at + inner)


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
    most: tl.constexpr,
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
    memory += tl.program_id(1) * width
    if pdl:
        # Of another step than this one it would do no harm.
        near = memory + (tl.load(step).to(tl.int64) * all_lines + line) * places * 2 * inner
        _fetch_soon(near, count, inner, most)
        gdc_wait()
    memory += tl.load(step).to(tl.int64) * all_lines * places * 2 * inner
    queries = qkv + tl.program_id(1) * width
    keys = queries + inner
    here = (i < length)[:, None] & (d < width)[None, :]
    rows = i.to(tl.int64)[:, None] * 3 * inner + d[None, :]
    q = tl.load(queries + rows, mask=here, other=0.0)
    ends = tl.minimum(starts + ((i - starts) // size + 1) * size, ends)
    # Finite: a tile of two rows has turns in which some of its queries see nobody.
    top = tl.full((bq,), -1e30, tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    for _ in range(tl.sum(firsts.to(tl.int32))):  # row by row
        held = memory + line * places * 2 * inner
        mine = starts == start
        seen = tl.where(mine, count + ends - start, 0)
        last = tl.max(seen)
        for key in range(0, last, bk):
            top, total, acc = _row_turn(
                q,
                keys,
                held,
                start,
                count,
                key,
                seen,
                last,
                top,
                total,
                acc,
                scale,
                inner,
                width,
                ieee,
                bk,
                bd,
            )
        # Behind the last row nobody waits for what these load.
        at = tl.minimum(tl.min(tl.where(firsts & (i >= end), i, length)), length - 1)
        start, end = tl.load(row_starts + at), tl.load(row_ends + at)
        count, line = tl.load(known + at), tl.load(lines + at).to(tl.int64)
    if tl.max(kept) > 0:
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
    bq, bk, warps, stages = tile_for(length, TILES[budget(qkv.device)])
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
        most=triton.next_power_of_2(past.memory.shape[2]),
        pdl=pdl(qkv),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(qkv),
    )
    return out
