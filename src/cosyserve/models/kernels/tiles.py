"""Loads and products of tiles, for kernels of linear layers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def times(x, w, acc, exact: tl.constexpr):
    """acc + x w^T."""
    if exact:
        x, w = x.to(tl.float32), w.to(tl.float32)
        return tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    return tl.dot(x.to(w.dtype), tl.trans(w), acc)


@triton.jit
def numbers(at, n, size):
    """A vector, as a line of float32."""
    return tl.load(at + n, mask=n < size, other=0.0).to(tl.float32)[None, :]


@triton.jit
def tile(at, m, n, rows, columns, stride):
    """Of a matrix; zero outside."""
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    return tl.load(at + m[:, None] * stride + n[None, :], mask=inside, other=0.0)


@triton.jit
def spread(x, size, eps, inside):
    """Mean and 1 / deviation of the rows of x [M, K], whose columns outside are zero."""
    mean = tl.sum(x, 1)[:, None] / size
    centred = tl.where(inside, x - mean, 0.0)
    return mean, tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / size + eps)
