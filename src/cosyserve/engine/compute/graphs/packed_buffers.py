"""Static memory that a packed flow is computed on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.flow.flow import Flow


@dataclass(frozen=True)
class PackedBuffers:
    """All that is computed on; packs of all sizes use the first part of it."""

    tokens: Tensor  # [S] behind each row's tokens those it looks at; -1: none
    counts: Tensor  # [R] tokens of each row that become frames
    prefixes: Tensor  # [R, 3] as of `PrefixCache.columns`
    chunks: Tensor  # [T, 3], as of `RowChunks` of all rows in one, for a flow that remembers
    speaker: Tensor  # [R, E]
    prompt: Tensor  # [F, mel]
    mu: Tensor  # [F, mel]
    sight: Tensor  # [5, 2F] int32: `RowSpans`, and `Hidden` or `Prefixes`; none is of known frames
    x: Tensor  # [F, mel] float32
    rows: Tensor  # [2F, 4 mel]: all of an estimate's input; the second half without conditions

    @classmethod
    def of(cls, flow: Flow, size: int, rows: int, spare: int) -> PackedBuffers:
        """For packs of up to so many tokens in so many rows, each with `spare` ones to look at."""
        config, like = flow.config, flow.weight
        frames, both = FRAMES_PER_TOKEN * size, config.copies * FRAMES_PER_TOKEN * size
        return cls(
            tokens=torch.full((size + spare * rows,), -1, device=like.device),
            counts=torch.ones(rows, dtype=torch.long, device=like.device),
            prefixes=torch.zeros(rows, 3, dtype=torch.long, device=like.device),
            chunks=torch.zeros(size, 3, dtype=torch.long, device=like.device),
            speaker=like.new_zeros(rows, config.speaker),
            prompt=like.new_zeros(frames, config.mel),
            mu=like.new_zeros(frames, config.mel),
            sight=torch.zeros(5, both, dtype=torch.int32, device=like.device),
            x=torch.zeros(frames, config.mel, device=like.device),
            rows=like.new_zeros(both, 4 * config.mel),
        )
