"""Step-Audio2's DiT over packed rows in few launches, for a GPU. `DiT` is its reference.

A block is four products of the library's and eight kernels; what depends on the time alone is
computed once for all Euler steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.flow.dit import DiT, DiTBlock
from cosyserve.models.flow.fused.weights import conv, linear, norm
from cosyserve.models.flow.kernels import euler
from cosyserve.models.flow.kernels.attention import row as row_attention
from cosyserve.models.flow.kernels.attention.packed import attention
from cosyserve.models.flow.kernels.head_norm import norm_heads
from cosyserve.models.flow.kernels.linear import gelu_linear, norm_mish
from cosyserve.models.flow.kernels.modulation import TimeTables, norm_modulate
from cosyserve.models.flow.packing import Sight


class FusedDiT:
    euler = staticmethod(euler.euler)
    max_tiles = staticmethod(row_attention.max_tiles)
    query_tiles = staticmethod(row_attention.query_tiles)

    def __init__(self, dit: DiT, times: Sequence[float]) -> None:
        """`times` of the Euler steps."""
        weight = dit.in_proj.weight
        self.ieee = weight.dtype is torch.float32
        time = dit.embed_time(torch.tensor(times, device=weight.device), weight.dtype)
        self._heads = dit.config.heads
        self._enter = linear(dit.in_proj)
        self._blocks = [_Block(block, time) for block in dit.blocks if isinstance(block, DiTBlock)]
        shift, scale = _tables(dit.final_layer.adaLN_modulation, time, 2)
        self._last = TimeTables(1 + scale, shift)
        self._leave = linear(dit.final_layer.linear)

    def pasts(self, frames: int) -> list[tuple[int, int]]:
        """As `FusedUNet.pasts`: nothing, for a prompt's chunk has no fixed length."""
        return []

    def __call__(self, x: Tensor, step: Tensor, sight: Sight) -> Tensor:
        """As `DiT.forward`, of packed rows x [T, 4 mel] (frames of x, mu, speaker and prompt), at
        the time of Euler step `step` [1] -> [T, mel]."""
        x, added, spans = F.linear(x, *self._enter), None, sight.spans
        for block in self._blocks:
            qkv = F.linear(norm_modulate(x, added, block.attention, step), *block.qkv)
            norm_heads(qkv, *block.head_norms, self._heads, block.head_eps)
            y = attention(qkv, sight, self._heads, None, ieee=self.ieee)
            added = F.linear(y, *block.out), block.attention_gate
            y = block.first(norm_modulate(x, added, block.convolution, step), spans, self.ieee)
            y = block.second(norm_mish(y, block.norm, None, step), spans, self.ieee)
            y = norm_modulate(x, (y, block.convolution_gate), block.feed_forward, step)
            y = F.linear(gelu_linear(y, *block.widen), *block.narrow)
            added = y, block.feed_forward_gate
        return F.linear(norm_modulate(x, added, self._last, step), *self._leave)


class _Block:
    """A block's weights; query, key and value are one product."""

    def __init__(self, block: DiTBlock, time: Tensor) -> None:
        tables = _tables(block.adaLN_modulation, time, 9)
        shift, scale, self.attention_gate = tables[:3]
        self.attention = TimeTables(1 + scale, shift)
        shift, scale, self.feed_forward_gate = tables[3:6]
        self.feed_forward = TimeTables(1 + scale, shift)
        shift, scale, self.convolution_gate = tables[6:]
        self.convolution = TimeTables(1 + scale, shift)
        attention, layers = block.attn, block.conv.block
        parts = attention.to_q, attention.to_k, attention.to_v
        self.qkv = (
            torch.cat([layer.weight for layer in parts]),
            torch.cat([layer.bias for layer in parts]),
        )
        norms = attention.q_norm, attention.k_norm
        self.head_norms = (
            torch.stack([layer.weight for layer in norms]),
            torch.stack([layer.bias for layer in norms]),
        )
        self.head_eps = attention.q_norm.eps
        self.out = linear(attention.proj)
        self.first, self.norm, self.second = conv(layers["1"]), norm(layers["3"]), conv(layers["6"])
        self.widen, self.narrow = linear(block.mlp["fc1"]), linear(block.mlp["fc2"])


def _tables(modulation: nn.Sequential, time: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Of each Euler step: [steps, C] float32 each."""
    return tuple(part.float().contiguous() for part in modulation(time).chunk(parts, dim=-1))
