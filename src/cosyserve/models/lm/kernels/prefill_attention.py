"""Attention of pieces of rows' prompts over the rows' caches, with grouped queries.

Two launches: queries and keys are rotated by their position and the cache is written, then every
position attends to all that its row holds up to itself.
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
from cosyserve.models.kernels.softmax import add_values, weigh

QUERIES, KEYS = 32, 64  # of a tile, whose queries belong to one row


@triton.jit
def _rotate(
    qkv,
    rotary,
    slots,
    starts,
    keys,
    values,
    heads,
    kv_heads,
    slot_stride,
    head_stride,
    span,
    width: tl.constexpr,
    pdl: tl.constexpr,
    bq: tl.constexpr,
    bh: tl.constexpr,
    bd: tl.constexpr,
):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    position = tl.minimum(tl.load(starts + row // bq) + row % bq, span - 1)
    half: tl.constexpr = width // 2
    h, d = tl.arange(0, bh)[:, None], tl.arange(0, bd)[None, :]
    line = qkv + row * (heads + 2 * kv_heads) * width + h * width
    is_rotated = (h < heads + kv_heads) & (d < half)
    left = tl.load(line + d, mask=is_rotated, other=0.0).to(tl.float32)
    right = tl.load(line + d + half, mask=is_rotated, other=0.0).to(tl.float32)
    cos = tl.load(rotary + position * width + d, mask=d < half, other=0.0)
    sin = tl.load(rotary + position * width + half + d, mask=d < half, other=0.0)
    dtype = keys.dtype.element_ty
    left_out = (left * cos - right * sin).to(dtype)
    right_out = (right * cos + left * sin).to(dtype)
    is_query = is_rotated & (h < heads)
    tl.store(line + d, left_out.to(qkv.dtype.element_ty), mask=is_query)
    tl.store(line + d + half, right_out.to(qkv.dtype.element_ty), mask=is_query)
    cache_at = (
        tl.load(slots + row // bq) * slot_stride + (h - heads) * head_stride + position * width + d
    )
    is_key = is_rotated & (h >= heads)
    tl.store(keys + cache_at, left_out, mask=is_key)
    tl.store(keys + cache_at + half, right_out, mask=is_key)
    value = line + kv_heads * width + d
    tl.store(values + cache_at, tl.load(value, mask=is_key, other=0.0).to(dtype), mask=is_key)
    there = tl.load(value + half, mask=is_key, other=0.0).to(dtype)
    tl.store(values + cache_at + half, there, mask=is_key)


@triton.jit
def _attend(
    qkv,
    slots,
    starts,
    keys,
    values,
    out,
    length,
    heads,
    kv_heads,
    slot_stride,
    head_stride,
    span,
    scale,
    width: tl.constexpr,
    ieee: tl.constexpr,
    pdl: tl.constexpr,
    bq: tl.constexpr,
    bk: tl.constexpr,
    bd: tl.constexpr,
):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    head = tl.program_id(1)
    i = tl.program_id(0) * bq + tl.arange(0, bq)
    d = tl.arange(0, bd)
    wide = (d < width)[None, :]
    is_query = (i < length)[:, None] & wide
    line = qkv + head * width + d[None, :]
    q = tl.load(line + i[:, None] * (heads + 2 * kv_heads) * width, mask=is_query, other=0.0)
    tile = tl.program_id(0)
    first = tl.load(starts + tile).to(tl.int32)
    position = tl.minimum(first + tl.arange(0, bq), span - 1)
    cache_at = tl.load(slots + tile) * slot_stride + (head // (heads // kv_heads)) * head_stride
    dtype = keys.dtype.element_ty
    top = tl.full((bq,), float("-inf"), tl.float32)
    total = tl.zeros((bq,), tl.float32)
    acc = tl.zeros((bq, bd), tl.float32)
    for begin in range(0, tl.max(position, 0) + 1, bk):
        j = begin + tl.arange(0, bk)
        at = cache_at + j[:, None] * width + d[None, :]
        inside = (j < span)[:, None] & wide
        k = tl.load(keys + at, mask=inside, other=0.0)
        v = tl.load(values + at, mask=inside, other=0.0)
        if ieee:
            score = tl.dot(q.to(tl.float32), tl.trans(k.to(tl.float32)), input_precision="ieee")
        else:
            score = tl.dot(q.to(dtype), tl.trans(k))
        score = tl.where(j[None, :] <= position[:, None], score * scale, float("-inf"))
        weight, fade, top, total = weigh(score, top, total)
        acc = add_values(acc, weight, fade, v, ieee)
    acc /= total[:, None]
    target = out + i[:, None] * heads * width + head * width + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=is_query)


def attend(
    qkv: Tensor,
    rotary: Tensor,
    slots: Tensor,
    starts: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    heads: int,
    span: int,
    ieee: bool,
) -> Tensor:
    """qkv [T, heads + 2 kv_heads, D] in tiles of QUERIES: tile n belongs to line slots[n] of keys
    and values [slots, kv_heads, capacity, D] of one layer, of which `span` positions are looked at,
    and its positions are those from starts[n] on; rotary [positions, D] (cosines, then sines)
    -> [T, heads * D]. Rotates qkv in place."""
    length, _, width = qkv.shape
    kv_heads = keys.shape[1]
    out = torch.empty(length, heads * width, device=qkv.device, dtype=qkv.dtype)
    launch(
        _rotate,
        (length,),
        qkv=qkv,
        rotary=rotary,
        slots=slots,
        starts=starts,
        keys=keys,
        values=values,
        heads=heads,
        kv_heads=kv_heads,
        slot_stride=keys.stride(0),
        head_stride=keys.stride(1),
        span=span,
        width=width,
        pdl=pdl(qkv),
        bq=QUERIES,
        bh=triton.next_power_of_2(heads + kv_heads),
        bd=triton.next_power_of_2(width // 2),
        num_warps=4,
        launch_pdl=pdl(qkv),
    )
    launch(
        _attend,
        (triton.cdiv(length, QUERIES), heads),
        qkv=qkv,
        slots=slots,
        starts=starts,
        keys=keys,
        values=values,
        out=out,
        length=length,
        heads=heads,
        kv_heads=kv_heads,
        slot_stride=keys.stride(0),
        head_stride=keys.stride(1),
        span=span,
        scale=1.0 / math.sqrt(width),
        width=width,
        ieee=ieee,
        pdl=pdl(qkv),
        bq=QUERIES,
        bk=KEYS,
        bd=max(16, triton.next_power_of_2(width)),
        num_warps=4,
        num_stages=2,
        launch_pdl=pdl(qkv),
    )
    return out
