"""The hash of `models/randomness.py`, for kernels."""

from __future__ import annotations

import triton
import triton.language as tl

MASK = tl.constexpr(0xFFFFFFFF)


@triton.jit
def mix(x):
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & MASK
    return x ^ (x >> 15)


@triton.jit
def hash_seed(seed):
    """What `hash_counter` begins with."""
    return mix((seed & MASK) ^ mix((((seed >> 32) & MASK) + 0x9E3779B9) & MASK))


@triton.jit
def hash_counter(x, counter):
    """32 bits in int64: those before it, x, hashed with one more counter."""
    return mix(((x * 0x9E3779B1 + counter) & MASK) ^ 0x85EBCA6B)
