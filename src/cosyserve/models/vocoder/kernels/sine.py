"""Sines of our own: those of the library treat large arguments apart, which is slow."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def half_turns(x):
    """x -> the nearest multiple of π, in turns of π, and how far behind it x lies."""
    turn = x * 0.3183098861837907 + 12582912.0 - 12582912.0  # rounded: 1.5 * 2^23 has no fraction
    r = x - turn * 3.1415927410125732 + turn * 8.742278012618954e-8
    # Where x is too large to have a phase. What is no number stays none.
    return turn, tl.clamp(r, -1.6, 1.6, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def square_of_sine(x, scale):
    """sin²(π scale x), which repeats itself with every 1 of scale x."""
    turn = x * scale + 12582912.0 - 12582912.0
    r = x * scale - turn
    # As in `half_turns`; |r| is no more than 1/2.
    u = tl.minimum(r * r, 0.25, propagate_nan=tl.PropagateNan.ALL)
    y = -3.2713890 * u + 12.989536
    y = y * u - 30.085607
    y = y * u + 42.725338
    y = y * u - 32.469578
    return (y * u + 9.8696032) * u


@triton.jit
def sine_of_small(r):
    """sin(r) for |r| <= π/2."""
    u = r * r
    y = 2.602234589e-6 * u - 1.980776781e-4
    y = y * u + 8.333033548e-3
    y = y * u - 1.666665726e-1
    return (y * u + 1.0) * r


@triton.jit
def cosine_of_small(r):
    """cos(r) for |r| <= 1."""
    u = r * r
    y = -2.755731922e-7 * u + 2.480158730e-5
    y = y * u - 1.388888889e-3
    y = y * u + 4.166666667e-2
    return (y * u - 0.5) * u + 1.0


@triton.jit
def sine(x):
    turn, r = half_turns(x)
    odd = turn - 2.0 * tl.floor(0.5 * turn)
    return sine_of_small(r) * (1.0 - 2.0 * odd)
