"""Attention of one new position per row over the row's cache, with grouped queries.

Rotates query and key by their position, writes key and value to the cache, and attends to all that
the row holds. Keys are split among programs, so that a long row does not wait for one of them.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch, prefetch_l2
from cosyserve.models.kernels.softmax import add_values, weigh

GROUP = 16  # query heads of a tile, the fewest that a matrix unit takes
KEYS = 128  # per turn of a program's loop
WARPS, STAGES = 4, 2


@triton.jit
def _rotated(at, where, partner, cos, sin, left, inside):
    x = tl.load(at + where, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(at + partner, mask=inside, other=0.0).to(tl.float32)
    return x * cos + tl.where(left, -y, y) * sin


@triton.jit
def _turn(q, k, v, visible, top, total, acc, scale, ieee: tl.constexpr):
    """One turn of the softmax, over keys k and values v [K, D]."""
    if ieee:
        score = tl.dot(q, tl.trans(k.to(tl.float32)), input_precision="ieee") * scale
    else:
        score = tl.dot(q.to(k.dtype), tl.trans(k)) * scale
    score = tl.where(visible[None, :], score, float("-inf"))
    weight, fade, top, total = weigh(score, top, total)
    return top, total, add_values(acc, weight, fade, v, ieee)


@triton.jit
def _attend(
    qkv,
    rotary,
    lengths,
    keys,
    values,
    out,
    stats,
    heads,
    kv_heads,
    length_stride,
    slot_stride,
    head_stride,
    span,
    piece,
    scale,
    width: tl.constexpr,
    group: tl.constexpr,
    splits: tl.constexpr,
    ieee: tl.constexpr,
    pdl: tl.constexpr,
    bg: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
):
    row, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if pdl:
        gdc_launch_dependents()
    # Older than the last launch that did not begin early, as are all positions that are held.
    length = tl.minimum(tl.load(lengths + row * length_stride), span - 1).to(tl.int32)
    half: tl.constexpr = width // 2
    d, g = tl.arange(0, bd), tl.arange(0, bg)
    wide = d < width
    left = d < half
    partner = tl.where(left, d + half, d - half)
    angle = rotary + length * width + d % half
    cos = tl.load(angle, mask=wide, other=0.0)
    sin = tl.load(angle + half, mask=wide, other=0.0)
    row_keys = keys + row.to(tl.int64) * slot_stride + kv * head_stride
    row_values = values + row.to(tl.int64) * slot_stride + kv * head_stride
    first, end = split * piece, tl.minimum(length, (split + 1) * piece)
    p = first + tl.arange(0, bk)
    inside = (p < end)[:, None] & wide[None, :]
    first_k = tl.load(row_keys + p[:, None] * width + d[None, :], mask=inside, other=0.0)
    first_v = tl.load(row_values + p[:, None] * width + d[None, :], mask=inside, other=0.0)
    if pdl:
        for begin in range(first + bk, end, bk):
            at = tl.minimum(begin + tl.arange(0, bk), end - 1) * width
            prefetch_l2(row_keys + at)
            prefetch_l2(row_values + at)
        gdc_wait()
    line = qkv + row * (heads + 2 * kv_heads) * width
    query = (kv * group + g)[:, None] * width
    is_query = (g < group)[:, None] & wide[None, :]
    q = _rotated(
        line,
        query + d[None, :],
        query + partner[None, :],
        cos[None, :],
        sin[None, :],
        left[None, :],
        is_query,
    )
    dtype = keys.dtype.element_ty
    top = tl.full((bg,), float("-inf"), tl.float32)
    total = tl.zeros((bg,), tl.float32)
    acc = tl.zeros((bg, bd), tl.float32)
    if split == 0:  # the new position itself, which this launch never reads from the cache
        new = line + (heads + kv) * width
        k = _rotated(new, d, partner, cos, sin, left, wide).to(dtype)
        v = tl.load(new + kv_heads * width + d, mask=wide, other=0.0).to(dtype)
        tl.store(row_keys + length * width + d, k, mask=wide)
        tl.store(row_values + length * width + d, v, mask=wide)
        top = tl.sum(q * k.to(tl.float32)[None, :], 1) * scale
        total = tl.full((bg,), 1.0, tl.float32)
        acc += v.to(tl.float32)[None, :]
    if first < end:
        top, total, acc = _turn(q, first_k, first_v, p < end, top, total, acc, scale, ieee)
    for begin in range(first + bk, end, bk):
        p = begin + tl.arange(0, bk)
        at = p[:, None] * width + d[None, :]
        inside = (p < end)[:, None] & wide[None, :]
        k = tl.load(row_keys + at, mask=inside, other=0.0)
        v = tl.load(row_values + at, mask=inside, other=0.0)
        top, total, acc = _turn(q, k, v, p < end, top, total, acc, scale, ieee)
    where = (row * heads + kv * group + g) * splits + split
    if splits == 1:
        acc /= total[:, None]
    else:
        tl.store(stats + 2 * where, top, mask=g < group)
        tl.store(stats + 2 * where + 1, total, mask=g < group)
    tl.store(out + where[:, None] * width + d[None, :], acc.to(out.dtype.element_ty), mask=is_query)


def attend(
    qkv: Tensor,
    rotary: Tensor,
    lengths: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    heads: int,
    span: int,
    splits: int,
    ieee: bool,
) -> tuple[Tensor, Tensor]:
    """qkv [B, heads + 2 kv_heads, D], rotary [positions, D] (cosines, then sines), lengths [B]:
    positions held so far; keys and values [slots, kv_heads, capacity, D] of one layer. On a GPU
    what writes lengths, keys of other positions or values must have ended before the launch in
    front of this one begins.

    -> values [B, heads, splits, D] and stats [B, heads, splits, 2] for `linear_few.merge_project`;
    with one split the values are final, and in qkv's type.
    """
    rows, _, width = qkv.shape
    kv_heads = keys.shape[1]
    piece = triton.cdiv(triton.cdiv(span, KEYS), splits) * KEYS
    dtype = qkv.dtype if splits == 1 else torch.float32
    out = torch.empty(rows, heads, splits, width, device=qkv.device, dtype=dtype)
    stats = torch.empty(rows, heads, splits, 2, device=qkv.device, dtype=torch.float32)
    launch(
        _attend,
        (rows, kv_heads, splits),
        qkv=qkv,
        rotary=rotary,
        lengths=lengths,
        keys=keys,
        values=values,
        out=out,
        stats=stats,
        heads=heads,
        kv_heads=kv_heads,
        length_stride=lengths.stride(0),
        slot_stride=keys.stride(0),
        head_stride=keys.stride(1),
        span=span,
        piece=piece,
        scale=1.0 / math.sqrt(width),
        width=width,
        group=heads // kv_heads,
        splits=splits,
        ieee=ieee,
        pdl=pdl(qkv),
        bg=max(GROUP, triton.next_power_of_2(heads // kv_heads)),
        bk=KEYS,
        bd=max(16, triton.next_power_of_2(width)),
        num_warps=WARPS,
        num_stages=STAGES,
        launch_pdl=pdl(qkv),
    )
    return out, stats
