"""A causal convolution of kernel 3 over rows of channels, with LayerNorm and Mish behind it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyserve.models.kernels.rows import normed, times

TIMES = 16  # per program, which holds all channels of them
COLUMNS = 64  # per turn of a program's loop


@triton.jit
def _causal_conv(
    x,
    weight,
    bias,
    scale,
    shift,
    added,
    out,
    length,
    eps,
    size: tl.constexpr,
    outputs: tl.constexpr,
    norms: tl.constexpr,
    adds: tl.constexpr,
    exact: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    row = tl.program_id(1)
    t = tl.program_id(0) * bm + tl.arange(0, bm)
    n = tl.arange(0, bn)
    wide = n < outputs
    first = x + row.to(tl.int64) * length * size
    acc = tl.zeros((bm, bn), tl.float32)
    for tap in tl.static_range(3):
        at = t + (tap - 2)
        there = (at >= 0) & (at < length)
        for begin in range(0, size, bk):
            k = begin + tl.arange(0, bk)
            inside = there[:, None] & (k < size)[None, :]
            found = tl.load(first + at[:, None] * size + k[None, :], mask=inside, other=0.0)
            where = weight + (tap * outputs + n)[:, None] * size + k[None, :]
            w = tl.load(where, mask=wide[:, None] & (k < size)[None, :], other=0.0)
            acc = times(found, w, acc, exact)
    acc += tl.load(bias + n, mask=wide, other=0.0).to(tl.float32)[None, :]
    if norms:
        y = normed(acc, scale, shift, n, outputs, eps, wide[None, :])
        e = tl.exp(tl.minimum(y, 20.0))  # Mish: y tanh(log(1 + e^y))
        square = e * e + 2.0 * e
        acc = y * square / (square + 2.0)
    if adds:
        acc += tl.load(added + n, mask=wide, other=0.0).to(tl.float32)[None, :]
    target = out + row.to(tl.int64) * length * outputs + t[:, None] * outputs + n[None, :]
    written = (t < length)[:, None] & wide[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=written)


def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor, float] | None,
    added: Tensor | None,
    *,
    exact: bool,
) -> Tensor:
    """x [B, T, C], weight [3, N, C] -> [B, T, N]; with `norm` (weight, bias, eps) also LayerNorm
    and Mish, then `added` [N]."""
    batch, length, size = x.shape
    outputs = weight.shape[1]
    out = torch.empty(batch, length, outputs, device=x.device, dtype=x.dtype)
    scale, shift, eps = norm or (bias, bias, 0.0)
    _causal_conv[(triton.cdiv(length, TIMES), batch)](
        x,
        weight,
        bias,
        scale,
        shift,
        bias if added is None else added,
        out,
        length,
        eps,
        size,
        outputs,
        norm is not None,
        added is not None,
        exact,
        TIMES,
        max(16, triton.next_power_of_2(outputs)),
        COLUMNS,
        num_warps=8,
        num_stages=3,
    )
    return out
