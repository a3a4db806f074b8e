"""Attention of whole rows with the chunk mask: a frame sees all up to the end of its own chunk, and
nothing behind its row's end. The mask is computed, not read."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import Tile, is_large, tile_for
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.softmax import add_values, weigh_base2

TILES = Tile(64, 128, 4, 2), Tile(64, 128, 4, 2), Tile(64, 64, 4, 3)  # queries, keys


@triton.jit
def _turn(
    q,
    keys,
    at,
    ends,
    held,
    top,
    total,
    acc,
    scale,
    inner: tl.constexpr,
    width: tl.constexpr,
    masked: tl.constexpr,
    ieee: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
):
    """One turn of the softmax, over keys from `at` on; unless masked, all queries see them."""
    j, d = at + tl.arange(0, bk), tl.arange(0, bd)
    where = keys + j[:, None] * 3 * inner + d[None, :]
    inside = (d < width)[None, :]
    if masked:
        inside = inside & (j < held)[:, None]
    k = tl.load(where, mask=inside, other=0.0)
    v = tl.load(where + inner, mask=inside, other=0.0)
    if ieee:
        score = tl.dot(q.to(tl.float32), tl.trans(k.to(tl.float32)), input_precision="ieee")
    else:
        score = tl.dot(q, tl.trans(k))
    if masked:
        score = tl.where(j[None, :] < ends[:, None], score, float("-inf"))
    weight, fade, top, total = weigh_base2(score, scale, top, total)
    return top, total, add_values(acc, weight, fade, v, ieee)


@triton.jit(do_not_specialize=["length"])
def _attend(
    qkv,
    lengths,
    chunk,
    out,
    length,
    scale,
    heads: tl.constexpr,
    width: tl.constexpr,
    clear: tl.constexpr,
    ieee: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
    pdl: tl.constexpr,
):
    row, head = tl.program_id(1), tl.program_id(2)
    inner: tl.constexpr = heads * width
    # Those that see most go first.
    begin = (tl.num_programs(0) - 1 - tl.program_id(0)) * bq
    i = begin + tl.arange(0, bq)
    d = tl.arange(0, bd)
    if pdl:
        gdc_launch_dependents()
    step = tl.load(chunk).to(tl.int32)  # older than the last launch that did not begin early
    held = tl.load(lengths + row).to(tl.int32)
    if pdl:
        gdc_wait()
    line = qkv + row.to(tl.int64) * length * 3 * inner + head * width
    here = (i < length)[:, None] & (d < width)[None, :]
    q = tl.load(line + i[:, None] * 3 * inner + d[None, :], mask=here, other=0.0)
    ends = tl.minimum((i // step + 1) * step, held)
    top = tl.full((bq,), float("-inf"), tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    one_sees = tl.minimum(((begin + bq - 1) // step + 1) * step, held)
    if begin >= held:  # nobody looks at these
        one_sees = 0
    keys = line + inner
    first = 0
    if clear:
        first = tl.minimum((begin // step + 1) * step, one_sees) // bk * bk
        for at in range(0, first, bk):
            top, total, acc = _turn(
                q, keys, at, ends, held, top, total, acc, scale, inner, width, False, ieee, bk, bd
            )
    for at in range(first, one_sees, bk):
        top, total, acc = _turn(
            q, keys, at, ends, held, top, total, acc, scale, inner, width, True, ieee, bk, bd
        )
    acc /= tl.maximum(total, 1e-30)[:, None]
    target = out + row.to(tl.int64) * length * inner + head * width
    tl.store(
        target + i[:, None] * inner + d[None, :],
        acc.to(out.dtype.element_ty),
        mask=here,
    )


def chunk_attention(
    qkv: Tensor, lengths: Tensor, chunk: Tensor, heads: int, *, ieee: bool
) -> Tensor:
    """qkv [B, T, 3 * heads * D], lengths [B] >= 1 of the rows, chunk [1] (as long as T or longer:
    all see all) -> [B, T, heads * D], some number behind a row's end. On a GPU a launch of torch's
    must lie between the writing of lengths or chunk and this."""
    batch, length, columns = qkv.shape
    width = columns // (3 * heads)
    out = torch.empty(batch, length, heads * width, device=qkv.device, dtype=qkv.dtype)
    bq, bk, warps, stages = tile_for(batch * length, TILES)
    launch(
        _attend,
        (triton.cdiv(length, bq), batch, heads),
        qkv=qkv,
        lengths=lengths,
        chunk=chunk,
        out=out,
        length=length,
        scale=1.0 / (math.sqrt(width) * math.log(2.0)),
        heads=heads,
        width=width,
        clear=is_large(batch * length),  # with fewer, two loops take longer than one with masks
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
