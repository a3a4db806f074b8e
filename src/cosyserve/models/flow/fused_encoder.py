"""The upsampling conformer over whole rows in few launches, for a GPU. `UpsamplingConformer` is its
reference.

A conformer block is five kernels; what depends on distances and
weights alone is computed once, for the longest rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.flow.encoder import ConformerBlock, UpsamplingConformer, encode_distances
from cosyserve.models.flow.kernel_weights import Conv, bias, conv, linear, norm
from cosyserve.models.flow.kernels.linear import linear_add
from cosyserve.models.flow.kernels.norm_linear import fold_norm, layer_norm_linear
from cosyserve.models.flow.kernels.relative_attention import relative_attention
from cosyserve.models.flow.masks import valid


class FusedEncoder:
    def __init__(self, encoder: UpsamplingConformer, max_tokens: int) -> None:
        weight = encoder.after_norm.weight
        self.ieee = weight.dtype is torch.float32
        self._config = encoder.config
        self._embed = encoder.embed
        self._up_embed = encoder.up_embed
        self._after_norm = encoder.after_norm
        ahead, behind = encoder.pre_lookahead_layer.conv1, encoder.pre_lookahead_layer.conv2
        self._ahead = ahead.weight.transpose(1, 2).flatten(1).contiguous(), bias(ahead)
        self._behind = conv(behind)
        self._up = _upsampling(encoder.up_layer.conv)
        self._blocks, self._up_blocks = (
            _blocks(blocks, encode_distances(n, n, encoder.config.size, weight.device))
            for blocks, n in ((encoder.encoders, max_tokens), (encoder.up_encoders, 2 * max_tokens))
        )

    def __call__(
        self, tokens: Tensor, lengths: Tensor, inside: Tensor | None, size: int, streaming: bool
    ) -> Tensor:
        """As `UpsamplingConformer.forward`."""
        chunk = self._config.chunk if streaming else size
        encoded = torch.full_like(lengths, size) if inside is None else inside.sum(1)
        frames = 2 * encoded
        x = self._embed(tokens) * valid(lengths, tokens.shape[1])[..., None]
        x = F.pad(x, (0, 0, 0, size + self._config.lookahead - tokens.shape[1]))
        x = x[:, :size] + self._behind(self._look_ahead(x), self.ieee)
        for block in self._blocks:
            x = block(x, encoded, chunk, self.ieee)
        x = self._up(x, self.ieee).view(len(x), 2 * size, -1)
        x = self._up_embed(x)
        for block in self._up_blocks:
            x = block(x, frames, 2 * chunk, self.ieee)
        return self._after_norm(x)

    def _look_ahead(self, x: Tensor) -> Tensor:
        """x [B, T + lookahead, D] -> [B, T, D], as one product of all that a token sees."""
        seen = x.unfold(1, self._config.lookahead + 1, 1).transpose(2, 3).contiguous()
        y = linear_add(seen.view(-1, seen[0, 0].numel()), *self._ahead, None, ieee=self.ieee)
        return F.leaky_relu(y).view(*seen.shape[:2], -1)


class _Block:
    """A conformer block; query, key and value are one product."""

    def __init__(self, block: ConformerBlock, distances: Tensor) -> None:
        attention, forward = block.self_attn, block.feed_forward
        layers = attention.linear_q, attention.linear_k, attention.linear_v
        weights, biases = (
            torch.cat([layer.weight for layer in layers]),
            torch.cat([layer.bias for layer in layers]),
        )
        self._qkv = fold_norm(norm(block.norm_mha), weights, biases)
        self._biases = attention.pos_bias_u, attention.pos_bias_v
        self._table = attention.linear_pos(distances.to(weights.dtype))
        self._out = linear(attention.linear_out)
        self._widen = fold_norm(norm(block.norm_ff), *linear(forward["w_1"]))
        self._narrow = linear(forward["w_2"])

    def __call__(self, x: Tensor, lengths: Tensor, chunk: int, ieee: bool) -> Tensor:
        """x [B, T, D]."""
        shape, x = x.shape, x.flatten(0, 1)
        qkv = layer_norm_linear(x, self._qkv, act="none", ieee=ieee).view(*shape[:2], -1)
        y = relative_attention(qkv, self._biases, self._table, lengths, chunk, ieee=ieee)
        x = linear_add(y.flatten(0, 1), *self._out, x, ieee=ieee)
        y = layer_norm_linear(x, self._widen, act="silu", ieee=ieee)
        return linear_add(y, *self._narrow, x, ieee=ieee).view(shape)


def _blocks(blocks: nn.ModuleList, distances: Tensor) -> list[_Block]:
    return [_Block(block, distances) for block in blocks if isinstance(block, ConformerBlock)]


def _upsampling(layer: nn.Conv1d) -> Conv:
    """A convolution of kernel 5 over frames, each token's two being the same, as one of kernel 3
    over tokens that gives both frames of a token at once."""
    a, b, c, d, e = layer.weight.float().unbind(2)
    taps = [torch.cat(both) for both in ((a + b, a), (c + d, b + c), (e, d + e))]
    return Conv(torch.stack(taps, 2).to(layer.weight.dtype), bias(layer).repeat(2))
