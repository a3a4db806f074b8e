"""The flow's encoders over packed rows in few launches, for a GPU. `UpsamplingConformer` is the
reference of the first.

A conformer block is five kernels; what depends on distances and
weights alone is computed once, for the longest rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.flow.encoder import ConformerBlock, UpsamplingConformer, encode_distances
from cosyserve.models.flow.fused.weights import Conv, bias, conv, linear, norm
from cosyserve.models.flow.kernels.attention.relative import relative_attention
from cosyserve.models.flow.kernels.linear import linear_add
from cosyserve.models.flow.kernels.norm_linear import fold_norm, layer_norm_linear
from cosyserve.models.flow.lookahead import LookaheadEncoder, PreLookahead
from cosyserve.models.flow.packing import PackedTokens, RowSpans


class FusedEncoder:
    def __init__(self, encoder: UpsamplingConformer, max_tokens: int) -> None:
        weight = encoder.after_norm.weight
        self.ieee = weight.dtype is torch.float32
        self._config = encoder.config
        self._embed = encoder.embed
        self._up_embed = encoder.up_embed
        self._after_norm = encoder.after_norm
        self._pre = _PreLookahead(encoder.pre_lookahead_layer)
        self._up = _upsampling(encoder.up_layer.conv)
        self._blocks, self._up_blocks = (
            _blocks(blocks, encode_distances(n, n, encoder.config.size, weight.device))
            for blocks, n in ((encoder.encoders, max_tokens), (encoder.up_encoders, 2 * max_tokens))
        )

    def __call__(self, tokens: PackedTokens, streaming: bool) -> Tensor:
        """As `UpsamplingConformer.forward`, of packed rows -> [2T, D]."""
        chunk, spans = self._config.chunk if streaming else len(tokens.seen), tokens.spans
        x = self._pre(self._embed(tokens.embedded), tokens, self.ieee)
        for block in self._blocks:
            x = block(x, spans, chunk, self.ieee)
        x = self._up(x, spans, self.ieee).view(2 * len(x), -1)
        x, frames = self._up_embed(x), spans.repeated(2)
        for block in self._up_blocks:
            x = block(x, frames, 2 * chunk, self.ieee)
        return self._after_norm(x)


class FusedLookahead:
    """CosyVoice3's encoder. `LookaheadEncoder` is its reference."""

    def __init__(self, encoder: LookaheadEncoder) -> None:
        self._pre = _PreLookahead(encoder.pre_lookahead_layer)
        self.ieee = encoder.pre_lookahead_layer.conv1.weight.dtype is torch.float32

    def __call__(self, tokens: PackedTokens, streaming: bool) -> Tensor:
        """As `LookaheadEncoder.forward`, of packed rows -> [2T, D]."""
        x = self._pre(tokens.embedded, tokens, self.ieee)
        return x.repeat_interleave(FRAMES_PER_TOKEN, dim=0)


class _PreLookahead:
    def __init__(self, layer: PreLookahead) -> None:
        self._ahead = layer.conv1.weight.transpose(1, 2).flatten(1).contiguous(), bias(layer.conv1)
        self._behind = conv(layer.conv2)

    def __call__(self, x: Tensor, tokens: PackedTokens, ieee: bool) -> Tensor:
        """x [S, D] -> [T, D]: all that a token sees is one product."""
        x = (x * tokens.given[:, None])[tokens.seen]
        y = F.leaky_relu(linear_add(x.flatten(1), *self._ahead, None, ieee=ieee))
        return x[:, 0] + self._behind(y, tokens.spans, ieee)


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

    def __call__(self, x: Tensor, spans: RowSpans, chunk: int, ieee: bool) -> Tensor:
        """x [T, D]."""
        qkv = layer_norm_linear(x, self._qkv, act="none", ieee=ieee)
        y = relative_attention(qkv, self._biases, self._table, spans, chunk, ieee=ieee)
        x = linear_add(y, *self._out, x, ieee=ieee)
        y = layer_norm_linear(x, self._widen, act="silu", ieee=ieee)
        return linear_add(y, *self._narrow, x, ieee=ieee)


def _blocks(blocks: nn.ModuleList, distances: Tensor) -> list[_Block]:
    return [_Block(block, distances) for block in blocks if isinstance(block, ConformerBlock)]


def _upsampling(layer: nn.Conv1d) -> Conv:
    """A convolution of kernel 5 over frames, each token's two being the same, as one of kernel 3
    over tokens that gives both frames of a token at once."""
    a, b, c, d, e = layer.weight.float().unbind(2)
    taps = [torch.cat(both) for both in ((a + b, a), (c + d, b + c), (e, d + e))]
    return Conv(torch.stack(taps, 2).to(layer.weight.dtype), bias(layer).repeat(2))
