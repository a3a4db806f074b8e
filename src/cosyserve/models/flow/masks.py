"""Which position may see which, as something to add to attention scores."""

from __future__ import annotations

import torch
from torch import Tensor


def valid(lengths: Tensor, size: int) -> Tensor:
    """[B] -> bool [B, size]: True inside each row's length."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def attention_bias(inside: Tensor | None, size: int, chunk: int, like: Tensor) -> Tensor | None:
    """[B or 1, 1, size or 1, size]: 0 where query i sees key j, -inf elsewhere; None: all see all.

    inside: bool [B, size], or None when every row is full. chunk 0: no mask but that; otherwise i
    sees all keys up to the end of its own chunk.
    """
    seen = None if inside is None else inside[:, None, None, :]
    if chunk:
        position = torch.arange(size, device=like.device)
        causal = position[None, :] < ((position // chunk + 1) * chunk)[:, None]
        seen = causal[None, None] if seen is None else seen & causal
    if seen is None:
        return None
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, float("-inf"))
