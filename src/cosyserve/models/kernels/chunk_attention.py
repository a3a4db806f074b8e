"""Attention of whole rows with the chunk mask: a frame sees all up to the end of its own chunk, and
nothing behind its row's end. The mask is computed, not read."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

QUERIES, KEYS = 64, 64  # of a tile


@triton.jit
def _attend(
    qkv,
    lengths,
    chunk,
    out,
    length,
    heads,
    scale,
    width: tl.constexpr,
    exact: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
):
    row, head = tl.program_id(1), tl.program_id(2)
    i = tl.program_id(0) * bq + tl.arange(0, bq)
    d = tl.arange(0, bd)
    wide = (d < width)[None, :]
    inner = heads * width
    line = qkv + row.to(tl.int64) * length * 3 * inner + head * width
    q = tl.load(
        line + i[:, None] * 3 * inner + d[None, :], mask=(i < length)[:, None] & wide, other=0.0
    )
    step = tl.load(chunk).to(tl.int32)
    held = tl.load(lengths + row).to(tl.int32)
    ends = tl.minimum((i // step + 1) * step, held)
    top = tl.full((bq,), float("-inf"), tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    for begin in range(0, tl.max(ends, 0), bk):
        j = begin + tl.arange(0, bk)
        at = line + inner + j[:, None] * 3 * inner + d[None, :]
        inside = (j < held)[:, None] & wide
        k = tl.load(at, mask=inside, other=0.0)
        v = tl.load(at + inner, mask=inside, other=0.0)
        if exact:
            score = tl.dot(q.to(tl.float32), tl.trans(k.to(tl.float32)), input_precision="ieee")
        else:
            score = tl.dot(q, tl.trans(k))
        score = tl.where(j[None, :] < ends[:, None], score * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(top - higher)
        total = total * fade + tl.sum(weight, 1)
        acc *= fade[:, None]
        if exact:
            acc = tl.dot(weight, v.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(weight.to(v.dtype), v, acc)
        top = higher
    acc /= total[:, None]
    target = out + row.to(tl.int64) * length * inner + head * width
    tl.store(
        target + i[:, None] * inner + d[None, :],
        acc.to(out.dtype.element_ty),
        mask=(i < length)[:, None] & wide,
    )


def chunk_attention(
    qkv: Tensor, lengths: Tensor, chunk: Tensor, heads: int, *, exact: bool
) -> Tensor:
    """qkv [B, T, 3 * heads * D], lengths [B] >= 1 of the rows, chunk [1] (as long as T or longer:
    all see all) -> [B, T, heads * D]."""
    batch, length, columns = qkv.shape
    width = columns // (3 * heads)
    out = torch.empty(batch, length, heads * width, device=qkv.device, dtype=qkv.dtype)
    _attend[(triton.cdiv(length, QUERIES), batch, heads)](
        qkv,
        lengths,
        chunk,
        out,
        length,
        heads,
        1.0 / math.sqrt(width),
        width,
        exact,
        QUERIES,
        KEYS,
        max(16, triton.next_power_of_2(width)),
        num_warps=4,
        num_stages=2,
    )
    return out
