"""Which position may see which, as something to add to attention scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
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
        causal = _up_to_own_chunk(size, size, chunk, like.device)
        seen = causal[None, None] if seen is None else seen & causal
    return None if seen is None else _bias(seen, like)


def chunk_bias(queries: int, keys: int, chunk: int, like: Tensor) -> Tensor | None:
    """[queries, keys]: as `attention_bias`, of the last ones of so many positions; the first of
    them begins a chunk."""
    if queries <= chunk:
        return None
    return _bias(_up_to_own_chunk(queries, keys, chunk, like.device), like)


def _up_to_own_chunk(queries: int, keys: int, chunk: int, device: torch.device) -> Tensor:
    """bool [queries, keys]: i sees all keys up to the end of its own chunk."""
    position = torch.arange(keys, device=device)
    return position < ((position[-queries:] // chunk + 1) * chunk)[:, None]


def _bias(seen: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, float("-inf"))


class RowChunks(NamedTuple):
    """Of each token the chunk of its row that it belongs to, for rows in chunks of any lengths,
    the prompt being the first: [B, size] each. Tokens behind a row see its first one."""

    first: Tensor  # token of the chunk
    end: Tensor  # token behind the chunk
    prompt: Tensor  # token behind the prompt


def chunk_columns(prompt: int, ends: Sequence[int], size: int) -> NDArray[np.int64]:
    """[3, size]: a row of `RowChunks`, whose chunks behind the prompt end at `ends`; those and
    `size` count the prompt."""
    bounds = np.unique([0, prompt, *ends, size])
    lengths = np.diff(bounds)
    columns = bounds[:-1], bounds[1:], np.full_like(lengths, prompt)
    return np.repeat(np.stack(columns), lengths, axis=1)


def chunks_bias(chunks: RowChunks, times: int, history: int | None, like: Tensor) -> Tensor:
    """As `attention_bias`, where each token is `times` positions: i sees all up to the end of its
    own chunk; with `history`, of what lies between its prompt and its chunk only so much."""
    first, end, prompt = (
        times * part.repeat_interleave(times, dim=1)[..., None] for part in chunks
    )
    position = torch.arange(end.shape[1], device=like.device)
    seen = position < end
    if history is not None:
        seen = seen & ((position < prompt) | (position >= first - history))
    return _bias(seen, like)[:, None]
