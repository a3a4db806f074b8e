"""Loads and products of tiles, for kernels of linear layers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def times(x, w, acc, ieee: tl.constexpr):
    """acc + x w^T, in float32 with `ieee`, else as the matrix units round."""
    if ieee:
        x, w = x.to(tl.float32), w.to(tl.float32)
        return tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    return tl.dot(x.to(w.dtype), tl.trans(w), acc)


@triton.jit
def load_vector(at, n, size):
    """Elements n of a vector, as a float32 row [1, N]; zero outside."""
    return tl.load(at + n, mask=n < size, other=0.0).to(tl.float32)[None, :]


@triton.jit
def load_tile(at, m, n, rows, columns, stride):
    """Rows m and columns n of a matrix [rows, columns]; zero outside."""
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    return tl.load(at + m[:, None] * stride + n[None, :], mask=inside, other=0.0)


@triton.jit
def mean_rstd(x, size, eps, inside):
    """Mean and 1 / deviation of the rows of x [M, K], whose columns outside are zero."""
    mean = tl.sum(x, 1)[:, None] / size
    centered = tl.where(inside, x - mean, 0.0)
    return mean, tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / size + eps)
