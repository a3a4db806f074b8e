"""CosyVoice3's DiT in few launches, for a GPU. `RotaryDiT` is its reference.

A block is four products of the library's and four kernels; what depends on the time alone is
computed once for all Euler steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.flow.fused.weights import bias, linear
from cosyserve.models.flow.kernels import euler
from cosyserve.models.flow.kernels.attention import row as row_attention
from cosyserve.models.flow.kernels.attention.packed import attention
from cosyserve.models.flow.kernels.grouped_conv import grouped_conv
from cosyserve.models.flow.kernels.linear import gelu_linear
from cosyserve.models.flow.kernels.modulation import TimeTables, norm_modulate
from cosyserve.models.flow.kernels.rotation import rotate_first_head
from cosyserve.models.flow.packing import Sight
from cosyserve.models.flow.rotary_dit import Modulation, RotaryBlock, RotaryDiT, rotary_table


class FusedRotaryDiT:
    euler = staticmethod(euler.euler)
    max_tiles = staticmethod(row_attention.max_tiles)
    query_tiles = staticmethod(row_attention.query_tiles)

    def __init__(self, dit: RotaryDiT, times: Sequence[float], max_frames: int) -> None:
        """`times` of the Euler steps; rows have at most `max_frames`."""
        weight = dit.proj_out.weight
        self.ieee = weight.dtype is torch.float32
        time = dit.embed_time(torch.tensor(times, device=weight.device), weight.dtype)
        self._heads = dit.config.heads
        self._rotary = rotary_table(max_frames, dit.config.head_dim, weight.device)
        x, prompt, mu, speaker = dit.input_embed.proj.weight.chunk(4, dim=1)
        self._enter = torch.cat((x, mu, speaker, prompt), dim=1), bias(dit.input_embed.proj)
        positions = dit.input_embed.conv_pos_embed
        self._convs = [_grouped(conv[0]) for conv in (positions.conv1, positions.conv2)]
        blocks = [block for block in dit.transformer_blocks if isinstance(block, RotaryBlock)]
        self._blocks = [_Block(block, time) for block in blocks]
        scale, shift = _tables(dit.norm_out, time)
        self._last = TimeTables(1 + scale, shift)
        self._leave = linear(dit.proj_out)

    def pasts(self, frames: int) -> list[tuple[int, int]]:
        """As `FusedUNet.pasts`."""
        convs = [
            (weight.shape[1] - 1, weight.shape[0] * weight.shape[2]) for weight, _ in self._convs
        ]
        return [*convs, *((frames, 2 * len(block.qkv[0]) // 3) for block in self._blocks)]

    def __call__(self, x: Tensor, step: Tensor, sight: Sight) -> Tensor:
        """As `RotaryDiT.forward`, of packed rows x [T, 4 mel] (frames of what `stack_inputs`
        gives), at the time of Euler step `step` [1] -> [T, mel]."""
        (first, second), spans, pasts = self._convs, sight.spans, sight.pasts(step)
        x = F.linear(x, *self._enter)
        y = grouped_conv(x, spans, *first, None, next(pasts), ieee=self.ieee)
        x = grouped_conv(y, spans, *second, x, next(pasts), ieee=self.ieee)
        added = None
        for block in self._blocks:
            y = norm_modulate(x, added, block.attention, step)
            qkv = F.linear(y, *block.qkv)
            rotate_first_head(qkv, spans, sight.prefixes, self._rotary)
            y = attention(qkv, sight, self._heads, next(pasts), ieee=self.ieee)
            y = F.linear(y, *block.out)
            y = norm_modulate(x, (y, block.gate), block.feed_forward, step)
            y = F.linear(gelu_linear(y, *block.widen), *block.narrow)
            added = y, block.feed_forward_gate
        return F.linear(norm_modulate(x, added, self._last, step), *self._leave)


class _Block:
    """A block's weights; query, key and value are one product."""

    def __init__(self, block: RotaryBlock, time: Tensor) -> None:
        shift, scale, self.gate, ff_shift, ff_scale, self.feed_forward_gate = _tables(
            block.attn_norm, time
        )
        self.attention = TimeTables(1 + scale, shift)
        self.feed_forward = TimeTables(1 + ff_scale, ff_shift)
        layers = block.attn.to_q, block.attn.to_k, block.attn.to_v
        self.qkv = (
            torch.cat([layer.weight for layer in layers]),
            torch.cat([layer.bias for layer in layers]),
        )
        self.out = linear(block.attn.to_out[0])
        widen, _, narrow = block.ff.ff
        assert isinstance(widen, nn.Sequential)
        self.widen, self.narrow = linear(widen[0]), linear(narrow)


def _tables(modulation: Modulation, time: Tensor) -> tuple[Tensor, ...]:
    """Of each Euler step: [steps, C] float32 each."""
    return tuple(part[:, 0].float().contiguous() for part in modulation(time))


def _grouped(conv: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(conv, nn.Conv1d)
    size = conv.in_channels // conv.groups
    weight = conv.weight.view(conv.groups, size, size, -1).permute(0, 3, 1, 2)
    return weight.contiguous(), bias(conv)
