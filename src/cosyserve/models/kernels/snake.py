"""The vocoder's activation, with what lies behind a row's end set to zero, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _snake(x, alpha, ends, out, channels, length, cuts: tl.constexpr, block: tl.constexpr):
    line = tl.program_id(1)
    t = tl.program_id(0) * block + tl.arange(0, block)
    there = t < length
    at = line.to(tl.int64) * length + t
    inside = there
    if cuts:
        inside = there & (t < tl.load(ends + line // channels))
    v = tl.load(x + at, mask=inside, other=0.0)
    a = tl.load(alpha + line % channels)
    wave = tl.sin(a * v)
    tl.store(out + at, v + wave * wave / (a + 1e-9), mask=there)


def snake(x: Tensor, alpha: Tensor, ends: Tensor | None) -> Tensor:
    """x [B, C, T] float32, alpha [C], ends [B] (None: rows are full)."""
    batch, channels, length = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    _snake[(triton.cdiv(length, BLOCK), batch * channels)](
        x,
        alpha,
        x if ends is None else ends,
        out,
        channels,
        length,
        ends is not None,
        BLOCK,
        num_warps=4,
    )
    return out
