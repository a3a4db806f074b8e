"""Weights of a transformer block as the kernel takes them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cosyserve.models.flow.kernels.between.layouts import WIDTH, order, shared
from cosyserve.models.flow.kernels.norm_linear import FoldedLinear

Linear = tuple[Tensor, Tensor]  # weight, bias


class Between(NamedTuple):
    """A block's weights as `between` takes them, with columns as the matrix units hold them."""

    qkv: TensorDescriptor
    qkv_bias: Tensor
    out: TensorDescriptor
    widen: TensorDescriptor
    narrow: TensorDescriptor
    biases: Tensor  # of those three
    eps: float


def fits(qkv: FoldedLinear, out: Linear, widen: FoldedLinear, narrow: Linear) -> bool:
    """Whether there is a kernel for such a block."""
    shapes = [tuple(layer[0].shape) for layer in (qkv, out, widen, narrow)]
    wanted = [(1536, 256), (256, 512), (1024, 256), (256, 1024)]
    return shapes == wanted and qkv.weight.dtype is torch.bfloat16 and qkv.eps == widen.eps


def ordered(qkv: FoldedLinear, out: Linear, widen: FoldedLinear, narrow: Linear) -> Between:
    lines, columns = order(len(qkv.weight)), order(WIDTH.value)
    biases = (out[1][columns], widen.rounded_bias, narrow[1][columns])
    return Between(
        tiles(qkv.weight[lines][:, columns], 128, 128),
        qkv.rounded_bias[lines],
        tiles(out[0][columns], 256, 64),
        tiles(widen.weight[:, columns], 64, 256),
        tiles(narrow[0][columns], 256, 64),
        torch.cat(biases).detach(),
        qkv.eps,
    )


def tiles(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """x [R, C] as the GPU's unit for copies takes it, by tiles."""
    return TensorDescriptor.from_tensor(
        x.detach().contiguous(), [rows, columns], shared(rows, columns)
    )
