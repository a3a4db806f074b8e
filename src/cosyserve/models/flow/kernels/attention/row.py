"""Attention of large packs, with a past or without: each tile of queries is of one row, so that
hardly a key is looked at in vain."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.attention.chunk import turn
from cosyserve.models.flow.kernels.linear import is_large
from cosyserve.models.flow.kernels.past import past_arguments
from cosyserve.models.flow.packing import LayerPast, RowSpans, Sight
from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import launch

QUERIES, KEYS = 64, 64  # of a tile
WARPS = 4
STAGES = {Budget.HOPPER: 3, Budget.SMALL: 2}
REGISTERS = {Budget.HOPPER: 128, Budget.SMALL: None}  # of a thread: four programs on a processor


def max_tiles(length: int, runs: int) -> int:
    """Tiles of so many positions that are of up to so many rows, and of blanks behind rows; 0 where
    there are too few positions to gain by them."""
    return length // QUERIES + runs if is_large(length) else 0


def query_tiles(spans: RowSpans, runs: int) -> Tensor:
    """Where each of `max_tiles` begins: [M] int32."""
    count = max_tiles(len(spans.starts), runs)
    return spans.tiles(QUERIES, count) if count else spans.starts[:0]


@triton.jit(do_not_specialize=["length", "all_lines"])
def _attend(
    qkv,
    tiles,
    row_starts,
    row_ends,
    from_hidden,
    to_hidden,
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
    hides: tl.constexpr,
    ieee: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
    pdl: tl.constexpr,
):
    inner: tl.constexpr = heads * width
    head = tl.program_id(0) * width
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    begin = tl.load(tiles + tl.program_id(1))
    if begin >= length:
        return
    i, d = begin + tl.arange(0, bq), tl.arange(0, bd)
    size = tl.load(chunk).to(tl.int32)
    start = tl.load(row_starts + begin)
    mine = tl.load(row_starts + i, mask=i < length, other=-1) == start
    ends = tl.load(row_ends + i, mask=i < length, other=0)
    hidden_starts, hidden_ends = ends, ends
    if hides:
        hidden_starts = tl.load(from_hidden + i, mask=i < length, other=1 << 30) - start
        hidden_ends = tl.load(to_hidden + i, mask=i < length, other=0) - start
    count, held = 0, qkv
    if places:
        count = tl.load(known + begin)
        held = memory + tl.load(lines + begin).to(tl.int64) * places * 2 * inner + head
    if pdl:
        gdc_wait()
    if places:
        held += tl.load(step).to(tl.int64) * all_lines * places * 2 * inner
    here = mine[:, None] & (d < width)[None, :]
    rows = i.to(tl.int64)[:, None] * 3 * inner + d[None, :]
    q = tl.load(qkv + head + rows, mask=here, other=0.0)
    keys = qkv + head + inner + start.to(tl.int64) * 3 * inner
    seen = tl.where(mine, count + tl.minimum(((i - start) // size + 1) * size, ends - start), 0)
    last = tl.max(seen)
    clear = tl.where(mine, seen, last)
    if hides:
        clear = tl.minimum(clear, hidden_starts)
    clear = tl.maximum(tl.min(clear), 0) // bk * bk
    top = tl.full((bq,), -1e30, tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    for masked in tl.static_range(2):
        for at in range(masked * clear, last if masked else clear, bk):
            j = at + tl.arange(0, bk)
            where = keys + (j - count).to(tl.int64) * 3 * inner
            if places:
                where = tl.where(j < count, held + j.to(tl.int64) * 2 * inner, where)
            top, total, acc = turn(
                q,
                where,
                j,
                tl.zeros_like(seen),
                seen,
                hidden_starts,
                hidden_ends,
                last,
                top,
                total,
                acc,
                scale,
                inner,
                width,
                masked,
                hides,
                ieee,
                bd,
            )
    if places:
        kept = mine & (i >= start) & (i - start < tl.load(wanted + begin))
        if tl.max(kept.to(tl.int32)) > 0:
            place = held + ((i - start) * 2 * inner)[:, None] + d[None, :]
            stored = kept[:, None] & (d < width)[None, :]
            source = qkv + head + inner + rows
            tl.store(place, tl.load(source, mask=stored), mask=stored)
            tl.store(place + inner, tl.load(source + inner, mask=stored), mask=stored)
    acc /= tl.maximum(total, 1e-30)[:, None]
    target = out + head + i.to(tl.int64)[:, None] * inner + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=here)


def row_attention(
    qkv: Tensor, sight: Sight, heads: int, past: LayerPast | None, *, ieee: bool
) -> Tensor:
    """As `attention`, of what has tiles."""
    assert sight.tiles is not None
    length, columns = qkv.shape
    width = columns // (3 * heads)
    out = torch.empty(length, heads * width, device=qkv.device, dtype=qkv.dtype)
    cut = budget(qkv.device)
    hidden = sight.hidden or sight.spans
    launch(
        _attend,
        (heads, len(sight.tiles)),
        qkv=qkv,
        tiles=sight.tiles,
        row_starts=sight.spans.starts,
        row_ends=sight.spans.ends,
        from_hidden=hidden.starts,
        to_hidden=hidden.ends,
        chunk=sight.chunk,
        **past_arguments(past, qkv),
        out=out,
        length=length,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        hides=sight.hidden is not None,
        ieee=ieee,
        bq=QUERIES,
        bk=KEYS,
        bd=max(16, triton.next_power_of_2(width)),
        pdl=pdl(qkv),
        num_warps=WARPS,
        num_stages=STAGES[cut],
        maxnreg=REGISTERS[cut],
        launch_pdl=pdl(qkv),
    )
    return out
