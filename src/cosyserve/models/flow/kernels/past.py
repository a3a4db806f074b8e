"""What kernels need of a row's prefix, in a memory of `places` frames a line (0: there is none).

A convolution reads the last frames of a prefix there, and leaves them there.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from cosyserve.models.flow.packing import LayerPast

COLUMNS: tl.constexpr = tl.constexpr(64)  # that are kept at a time


def past_arguments(past: LayerPast | None, unused: Tensor) -> dict[str, Any]:
    """What a launch is told of a layer's past; `unused` stands where there is none."""
    if past is None:
        names = ("memory", "step", "lines", "known", "wanted")
        return dict.fromkeys(names, unused) | {"all_lines": 0, "places": 0}
    _, all_lines, places, _ = past.memory.shape
    given = past.prefixes._asdict()
    return given | {
        "memory": past.memory,
        "step": past.step,
        "all_lines": all_lines,
        "places": places,
    }


@triton.jit
def frames_at(x, t, starts, length, past, line, known, places: tl.constexpr, stride: tl.constexpr):
    """Where frames t [M] of x begin, or of a line's memory those before their row's start, and
    whether they are there."""
    inside = (t >= starts) & (t < length)
    at = x + t.to(tl.int64) * stride
    if places:
        place = places + t - starts
        before = (place >= 0) & (place < places) & (starts - t <= known)
        at = tl.where(before, past + (line.to(tl.int64) * places + place) * stride, at)
        inside |= before
    return at, inside


@triton.jit
def keep_last(
    x,
    past,
    t,
    starts,
    line,
    wanted,
    length,
    places: tl.constexpr,
    size: tl.constexpr,
):
    """Writes those of frames t of x that are the last ones of a wanted prefix."""
    end = tl.load(wanted + t, mask=t < length, other=0)
    place = places + t - starts - end
    keeps = (t >= starts) & (place >= 0) & (place < places) & (end > 0)
    if tl.max(keeps.to(tl.int32)) > 0:
        target = past + (line.to(tl.int64) * places + place)[:, None] * size
        source = x + t.to(tl.int64)[:, None] * size
        for begin in range(0, size, COLUMNS):
            k = begin + tl.arange(0, COLUMNS)
            kept = keeps[:, None] & (k < size)[None, :]
            tl.store(target + k[None, :], tl.load(source + k[None, :], mask=kept), mask=kept)
