"""Faster or slower speech: mel frames interpolated in time, whole or as they arrive.

Output frame i lies at (i + 0.5) * speed - 0.5 of the input, wherever chunks begin, so that streamed
and whole speech are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StretchState:
    """`kept` [mel, k]: the last input frames, of which the first is input frame `start`."""

    kept: Tensor
    start: int = 0
    produced: int = 0


def stretch(
    mel: Tensor, state: StretchState | None, speed: float, final: bool
) -> tuple[Tensor, StretchState]:
    """Next input frames [mel, n] -> the output frames that they settle, and the new state."""
    state = state or StretchState(mel[:, :0])
    known = torch.cat((state.kept, mel), dim=1)
    end = state.start + known.shape[1]
    first = state.produced
    if final:
        count = max(1, int(end / speed)) if end else 0
    else:
        # An output frame needs both of its neighbours. Above speed 3 it may have them and yet be
        # none in the end, where only one more input frame comes.
        count = max(first, min(int((end - 0.5) / speed + 0.5), int((end + 1) / speed)))
    position = torch.arange(first, count, dtype=torch.float64, device=mel.device)
    position = (position + 0.5) * speed - 0.5
    position = position.clamp(0, max(0, end - 1))
    left = position.floor()
    weight = (position - left).to(mel)
    at = left.long() - state.start
    beside = (at + 1).clamp(max=known.shape[1] - 1)
    frames = torch.lerp(known[:, at], known[:, beside], weight)
    following = int(max(0.0, (count + 0.5) * speed - 0.5))
    start = min(max(state.start, following), end)
    return frames, StretchState(known[:, start - state.start :], start, count)
