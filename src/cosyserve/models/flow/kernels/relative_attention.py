"""Attention of whole rows whose scores also depend on the distance of query and key, in one launch.

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

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.softmax import weigh_base2
from cosyserve.models.kernels.tiles import load_tile, times

BLOCK, WARPS, STAGES = 64, 8, 2  # a program's queries, and keys per turn


@triton.jit(do_not_specialize=["length", "chunk", "reach"])
def _attend(
    qkv,
    by_key,
    by_distance,
    table,
    lengths,
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
    row, head = tl.program_id(1), tl.program_id(2)
    inner: tl.constexpr = heads * width
    # Those that see most go first.
    begin = (tl.num_programs(0) - 1 - tl.program_id(0)) * block
    at, d = tl.arange(0, block), tl.arange(0, bd)
    i = begin + at
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early.
    held = tl.load(lengths + row).to(tl.int32)
    near = tl.load(by_key + head * width + d, mask=d < width, other=0.0).to(tl.float32)
    far = tl.load(by_distance + head * width + d, mask=d < width, other=0.0).to(tl.float32)
    table += head * width
    # The first query's own key stands in column reach - 1 - begin of the table, the next one's a
    # column to the left.
    column = reach - begin - block + at
    nothing = tl.zeros((block, block), tl.float32)
    p = _distances(table, column, d, reach, inner, width)
    if pdl:
        gdc_wait()
    line = qkv + row.to(tl.int64) * length * 3 * inner + head * width
    q = load_tile(line, i, d, length, width, 3 * inner)
    q_key = (q.to(tl.float32) + near[None, :]).to(q.dtype)
    q_distance = (q.to(tl.float32) + far[None, :]).to(q.dtype)
    left = times(q_distance, p, nothing, ieee)
    # Line r of left and right together is block - 1 - r columns ahead of the keys.
    ahead = (block - 1 - at)[:, None]
    turned = (ahead + at[None, :]) % block
    ends = tl.minimum((i // chunk + 1) * chunk, held)
    top = tl.full((block,), float("-inf"), tl.float32)
    total = tl.zeros((block,), tl.float32)
    acc = tl.zeros((block, bd), tl.float32)
    one_sees = tl.minimum(((begin + block - 1) // chunk + 1) * chunk, held)
    if begin >= held:  # nobody looks at these
        one_sees = 0
    for first in range(0, one_sees, block):
        j = first + at
        k = load_tile(line + inner, j, d, held, width, 3 * inner)
        v = load_tile(line + 2 * inner, j, d, held, width, 3 * inner)
        p = _distances(table, column + first + block, d, reach, inner, width)
        right = times(q_distance, p, nothing, ieee)
        askew = tl.where(at[None, :] >= ahead, left, right)
        left = right
        score = times(q_key, k, tl.gather(askew, turned, 1), ieee)
        score = tl.where(j[None, :] < ends[:, None], score, float("-inf"))
        weight, fade, top, total = weigh_base2(score, scale, top, total)
        acc = times(weight.to(v.dtype), tl.trans(v), acc * fade[:, None], ieee)
    acc /= tl.maximum(total, 1e-30)[:, None]
    target = out + row.to(tl.int64) * length * inner + head * width
    tl.store(
        target + i[:, None] * inner + d[None, :],
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
    lengths: Tensor,
    chunk: int,
    *,
    ieee: bool,
) -> Tensor:
    """qkv [B, T, 3 * heads * D]; biases [heads, D], added to queries that meet a key and to those
    that meet a distance; table [2N - 1, heads * D] of the distances N - 1, ..., -(N - 1), with
    N >= T; lengths [B] >= 1; chunk (as long as T or longer: all see all) -> [B, T, heads * D],
    some number behind a row's end. On a GPU a launch of torch's must lie between the writing of
    lengths and this."""
    batch, length, _ = qkv.shape
    heads, width = biases[0].shape
    reach = (len(table) + 1) // 2
    assert length <= reach
    out = torch.empty(batch, length, heads * width, device=qkv.device, dtype=qkv.dtype)
    launch(
        _attend,
        (triton.cdiv(length, BLOCK), batch, heads),
        qkv=qkv,
        by_key=biases[0],
        by_distance=biases[1],
        table=table,
        lengths=lengths,
        out=out,
        length=length,
        chunk=chunk,
        reach=reach,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        ieee=ieee,
        block=BLOCK,
        bd=max(16, triton.next_power_of_2(width)),
        pdl=pdl(qkv),
        num_warps=WARPS,
        num_stages=STAGES,
        launch_pdl=pdl(qkv),
    )
    return out
