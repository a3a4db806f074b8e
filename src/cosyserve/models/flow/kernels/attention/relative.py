"""Attention of packed rows whose scores also depend on the distance of query and key, in one
launch.

The chunk mask is computed, as in `chunk_attention`. What depends on the distance is a product with
a table of distances: its columns lie askew to the keys', and a turn within each line straightens
them.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import Tile
from cosyserve.models.flow.packing import RowSpans
from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.softmax import weigh_base2
from cosyserve.models.kernels.tiles import load_tile, times

TILES = {Budget.HOPPER: Tile(64, 64, 8, 2), Budget.SMALL: Tile(32, 32, 4, 2)}  # queries, keys


@triton.jit(do_not_specialize=["length", "chunk", "reach"])
def _attend(
    qkv,
    by_key,
    by_distance,
    table,
    row_starts,
    row_ends,
    out,
    length,
    chunk,
    reach,
    scale,
    heads: tl.constexpr,
    width: tl.constexpr,
    ieee: tl.constexpr,
    block: tl.constexpr,
    bd: tl.constexpr,
    pdl: tl.constexpr,
):
    head = tl.program_id(1)
    inner: tl.constexpr = heads * width
    begin = tl.program_id(0) * block
    at, d = tl.arange(0, block), tl.arange(0, bd)
    i = begin + at
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    starts = tl.load(row_starts + i, mask=i < length, other=length)
    ends = tl.load(row_ends + i, mask=i < length, other=0)
    near = tl.load(by_key + head * width + d, mask=d < width, other=0.0).to(tl.float32)
    far = tl.load(by_distance + head * width + d, mask=d < width, other=0.0).to(tl.float32)
    table += head * width
    ends = tl.minimum(starts + ((i - starts) // chunk + 1) * chunk, ends)
    lowest, last = tl.min(starts), tl.max(ends)
    # The first query's own key stands in column reach - 1 - begin of the table, the next one's a
    # column to the left.
    column = reach - begin - block + at
    nothing = tl.zeros((block, block), tl.float32)
    p = _distances(table, column + lowest, d, reach, inner, width)
    if pdl:
        gdc_wait()
    line = qkv + head * width
    q = load_tile(line, i.to(tl.int64), d, length, width, 3 * inner)
    q_key = (q.to(tl.float32) + near[None, :]).to(q.dtype)
    q_distance = (q.to(tl.float32) + far[None, :]).to(q.dtype)
    left = times(q_distance, p, nothing, ieee)
    # Line r of left and right together is block - 1 - r columns ahead of the keys.
    ahead = (block - 1 - at)[:, None]
    turned = (ahead + at[None, :]) % block
    # Finite: a tile of two rows has turns in which some of its queries see nobody.
    top = tl.full((block,), -1e30, tl.float32)
    total = tl.zeros((block,), tl.float32)
    acc = tl.zeros((block, bd), tl.float32)
    for first in range(lowest, last, block):
        j = first + at
        k = load_tile(line + inner, j.to(tl.int64), d, last, width, 3 * inner)
        v = load_tile(line + 2 * inner, j.to(tl.int64), d, last, width, 3 * inner)
        p = _distances(table, column + first + block, d, reach, inner, width)
        right = times(q_distance, p, nothing, ieee)
        askew = tl.where(at[None, :] >= ahead, left, right)
        left = right
        score = times(q_key, k, tl.gather(askew, turned, 1), ieee)
        seen = (j[None, :] >= starts[:, None]) & (j[None, :] < ends[:, None])
        score = tl.where(seen, score, float("-inf"))
        weight, fade, top, total = weigh_base2(score, scale, top, total)
        acc = times(weight.to(v.dtype), tl.trans(v), acc * fade[:, None], ieee)
    acc /= tl.maximum(total, 1e-30)[:, None]
    tl.store(
        out + head * width + i.to(tl.int64)[:, None] * inner + d[None, :],
        acc.to(out.dtype.element_ty),
        mask=(i < length)[:, None] & (d < width)[None, :],
    )


@triton.jit
def _distances(table, column, d, reach, inner: tl.constexpr, width: tl.constexpr):
    """Columns of the table of distances; zero outside of it."""
    inside = ((column >= 0) & (column < 2 * reach - 1))[:, None] & (d < width)[None, :]
    return tl.load(table + column[:, None] * inner + d[None, :], mask=inside, other=0.0)


def relative_attention(
    qkv: Tensor,
    biases: tuple[Tensor, Tensor],
    table: Tensor,
    spans: RowSpans,
    chunk: int,
    *,
    ieee: bool,
) -> Tensor:
    """qkv [T, 3 * heads * D] of packed rows; biases [heads, D], added to queries that meet a key
    and to those that meet a distance; table [2N - 1, heads * D] of the distances N - 1, ...,
    -(N - 1),
    with N as long as a row or longer; chunk (as long as a row or longer: all see all) ->
    [T, heads * D], zero behind the last row. On a GPU a launch of torch's must lie between the
    writing of spans and this."""
    length, _ = qkv.shape
    heads, width = biases[0].shape
    reach = (len(table) + 1) // 2
    out = torch.empty(length, heads * width, device=qkv.device, dtype=qkv.dtype)
    block, _, warps, stages = TILES[budget(qkv.device)]
    launch(
        _attend,
        (triton.cdiv(length, block), heads),
        qkv=qkv,
        by_key=biases[0],
        by_distance=biases[1],
        table=table,
        row_starts=spans.starts,
        row_ends=spans.ends,
        out=out,
        length=length,
        chunk=chunk,
        reach=reach,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        ieee=ieee,
        block=block,
        bd=max(16, triton.next_power_of_2(width)),
        pdl=pdl(qkv),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(qkv),
    )
    return out
