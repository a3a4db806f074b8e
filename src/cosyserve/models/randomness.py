"""Counter-based randomness: the same (seed, counters) give the same number anywhere.

There is no generator state: everything is an integer hash, of tensors or of Python's integers, so
that it runs inside a CUDA graph and does not depend on who shares a batch, on chunk borders or on
the process.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF

Number = TypeVar("Number", Tensor, int)


def _mix(x: Number) -> Number:
    """A bijection of 32-bit integers (held in int64) that flips about half of the bits."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD & _MASK32
    x = (x ^ (x >> 15)) * 0x735A2D97 & _MASK32
    return x ^ (x >> 15)


def hash32(seed: Number, *counters: Number | int) -> Number:
    """32 random bits per element, as int64, of broadcast int64 seeds and counters."""
    x = _mix((seed & _MASK32) ^ _mix((seed >> 32 & _MASK32) + 0x9E3779B9 & _MASK32))
    for counter in counters:
        x = _mix((x * 0x9E3779B1 + counter & _MASK32) ^ 0x85EBCA6B)
    return x


def uniform(seed: Tensor, step: Tensor | int, draw: Tensor | int) -> Tensor:
    """float64 in [0, 1): one number per (seed, step, draw), with 32 random bits."""
    return hash32(seed, step, draw).double() / 2.0**32


def normal(seed: Tensor, index: Tensor, columns: int) -> Tensor:
    """float32 standard normals [..., columns] for absolute indices [...] (seed broadcasts).

    Each hash is cut in two 16-bit uniforms, one Box-Muller pair; 16 bits reach 4.7 sigma.
    """
    pairs = (columns + 1) // 2
    column = torch.arange(pairs, device=index.device)
    bits = hash32(seed[..., None], index[..., None], column)
    radius = torch.sqrt(-2.0 * torch.log(((bits >> 16).float() + 0.5) / 65536.0))
    angle = (bits & 0xFFFF).float() * (2.0 * math.pi / 65536.0)
    both = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1)
    return both.flatten(-2)[..., :columns]
