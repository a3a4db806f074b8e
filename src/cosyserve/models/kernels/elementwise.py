"""What lies between the matrix products of larger batches, one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _add_norm(x, delta, scale, out, size, eps, adds: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, block)
    inside = k < size
    at = row * size + k
    found = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if adds:
        found += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, found.to(x.dtype.element_ty), mask=inside)
    factor = tl.rsqrt(tl.sum(found * found, 0) / size + eps)
    y = found * factor * tl.load(scale + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def add_norm(
    x: Tensor, delta: Tensor | None, scale: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    """Adds `delta` to the residual x [B, H] in place -> its RMSNorm, in the given type."""
    rows, size = x.shape
    out = torch.empty(rows, size, device=x.device, dtype=dtype)
    _add_norm[(rows,)](
        x,
        x if delta is None else delta,
        scale,
        out,
        size,
        eps,
        delta is not None,
        triton.next_power_of_2(size),
        num_warps=4,
    )
    return out


@triton.jit
def _gate(x, out, size, block: tl.constexpr):
    row = tl.program_id(0)
    k = tl.program_id(1) * block + tl.arange(0, block)
    inside = k < size
    at = x + row * 2 * size + k
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(out + row * size + k, y.to(out.dtype.element_ty), mask=inside)


def gate(x: Tensor) -> Tensor:
    """SiLU of the first half of each row, times the second: [B, 2N] -> [B, N]."""
    rows, size = x.shape[0], x.shape[1] // 2
    out = torch.empty(rows, size, device=x.device, dtype=x.dtype)
    _gate[(rows, triton.cdiv(size, BLOCK))](x, out, size, BLOCK, num_warps=4)
    return out
