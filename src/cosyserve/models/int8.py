"""Weights in eight bits: one scale per output channel, half the bytes of half precision.

In a file, a matrix `key` is int8 and `key.scale` holds a scale per row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosyserve.errors import CheckpointError

State = dict[str, Tensor]
SCALE = ".scale"
LEVELS = 127
MAX_SCALE = torch.finfo(torch.float16).max / 128


def packed(state: State) -> State:
    """Matrices and kernels in eight bits; what has one dimension in half precision."""
    small: State = {}
    for key, value in state.items():
        if not value.is_floating_point() or value.ndim < 2:
            small[key] = value.half() if value.is_floating_point() else value
            continue
        rows = value.float().flatten(1)
        scale = (rows.abs().amax(1) / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
        small[key] = (rows / scale[:, None]).round().to(torch.int8).view(value.shape)
        small[key + SCALE] = scale
    return small


def unpacked(file: str, state: State) -> State:
    """Half precision again, all of it finite; a state without int8 is left as it is."""
    whole: State = {}
    for key, value in state.items():
        if value.dtype is torch.int8:
            scale = state.get(key + SCALE)
            if scale is None or tuple(scale.shape) != tuple(value.shape[:1]):
                raise CheckpointError(f"{file}: '{key}' is int8 without a scale per row")
            by_row = scale.float().view(-1, *[1] * (value.ndim - 1))
            if not (by_row.abs() <= MAX_SCALE).all():
                raise CheckpointError(f"{file}: '{key}{SCALE}' is beyond half precision")
            whole[key] = (value * by_row).half()
        elif not key.endswith(SCALE) or key.removesuffix(SCALE) not in state:
            whole[key] = value
    return whole
