"""One turn of an online softmax: scores come tile by tile, and what was summed up so far fades."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weigh(score, top, total):
    """Scores [M, K] of more keys, the highest score and the sum of weights so far [M] each ->
    weights [M, K], the factor of all that was summed up before [M], and the new highest and sum."""
    higher = tl.maximum(top, tl.max(score, 1))
    weight = tl.exp(score - higher[:, None])
    fade = tl.exp(top - higher)
    return weight, fade, higher, total * fade + tl.sum(weight, 1)


@triton.jit
def weigh_base2(score, scale, top, total):
    """`weigh` of scores times `scale`, with powers of 2 in place of e."""
    higher = tl.maximum(top, tl.max(score, 1) * scale)
    weight = tl.exp2(score * scale - higher[:, None])
    fade = tl.exp2(top - higher)
    return weight, fade, higher, total * fade + tl.sum(weight, 1)


@triton.jit
def add_values(acc, weight, fade, v, ieee: tl.constexpr):
    """acc fade + weight v: acc [M, D], values v [K, D], the others as `weigh` gives them."""
    acc *= fade[:, None]
    if ieee:
        return tl.dot(weight, v.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(weight.to(v.dtype), v, acc)
