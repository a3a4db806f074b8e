"""The speech LM in few launches, for a GPU. `SpeechLM.extend` is its reference.

Up to SMALL_BATCH rows, each layer of a decoding step is five kernels of ours that read every weight
once, in eight bits if the LM says so; up to MEDIUM_BATCH, six with matrix units. For more, and for
prompts, matrix products are the library's and what lies between them ours.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.models import int8
from cosyserve.models.lm.kernels.decode_attention import attend as attend_decode
from cosyserve.models.lm.kernels.draw import draw
from cosyserve.models.lm.kernels.elementwise import add_norm, embed, gate
from cosyserve.models.lm.kernels.linear_batch import (
    add_linear,
    batch_linear,
    gated_linear,
    split_linear,
)
from cosyserve.models.lm.kernels.linear_few import merge_project, project, rms_norm_linear
from cosyserve.models.lm.kernels.prefill_attention import attend as attend_prefill
from cosyserve.models.lm.lm import KVCache, Layer, SpeechLM

SMALL_BATCH = 2  # rows that a program computes one after another
MEDIUM_BATCH = 64  # rows that a program computes at a time, as a matrix product
DOWN_SPLITS = 4  # of the longest products' sums: else too few programs would have all the work
SPLITS = 4  # of a few rows' keys


class FusedLM:
    def __init__(self, lm: SpeechLM, positions: int) -> None:
        config, weight = lm.config, lm.head.weight
        self.lm = lm
        # Matrix units would round float32.
        self.ieee = weight.dtype is torch.float32
        exponent = torch.arange(0, config.head_dim, 2, device=weight.device) / config.head_dim
        position = torch.arange(positions, device=weight.device)
        angle = position[:, None] * config.rope_theta**-exponent
        self._rotary = torch.cat((angle.cos(), angle.sin()), dim=1)
        self._head = _matrix(lm, lm.head)
        self._layers = [layer for layer in lm.layers if isinstance(layer, Layer)]
        self._matrices = [
            tuple(_matrix(lm, part) for part in (layer.qkv, layer.out, layer.gate_up, layer.down))
            for layer in self._layers
        ]

    def logits(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        """Appends ids [B] to rows that hold `lengths` [B] positions -> float32 [B, classes]."""
        if len(ids) <= SMALL_BATCH:
            return self._decode_small(ids, lengths, cache, span)
        if len(ids) <= MEDIUM_BATCH:
            return self._decode_medium(ids, lengths, cache, span)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            values, _ = self._attend(layer, qkv, lengths, cache, span)
            return values.flatten(1)

        x, delta = self._forward_large(ids, attend)
        return self.lm.logits(self._last_norm(x, delta))

    def prompt(
        self, ids: Tensor, slots: Tensor, starts: Tensor, last: Tensor, cache: KVCache, span: int
    ) -> Tensor:
        """Feeds ids [T] in tiles of `prefill_attention.QUERIES`: tile n to row slots[n], from its
        position starts[n] on -> float32 [B, classes] behind the ids number last [B]."""
        config = self.lm.config

        def attend(layer: int, qkv: Tensor) -> Tensor:
            return attend_prefill(
                qkv.view(len(qkv), -1, config.head_dim),
                self._rotary,
                slots,
                starts,
                cache.keys[layer],
                cache.values[layer],
                heads=config.heads,
                span=span,
                ieee=self.ieee,
            )

        x, delta = (part.index_select(-2, last) for part in self._forward_large(ids, attend))
        return self.lm.logits(self._last_norm(x, delta))

    def draw(
        self,
        logits: Tensor,
        ints: Tensor,
        floats: Tensor,
        outcome: Tensor,
        slots: Tensor | None,
        max_top_k: int,
    ) -> None:
        """`lm.draw.draw` of the lines `slots` in one launch; or of the first ones, whose length
        grows by what was fed."""
        draw(logits, ints, floats, outcome, slots, self.lm.config, max_top_k)

    def _decode_small(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        lm, dtype = self.lm, self.lm.head.weight.dtype
        x = embed(ids, lm.embedding.weight)
        for index, (layer, matrices) in enumerate(zip(self._layers, self._matrices, strict=True)):
            qkv, out, wide, down = matrices
            norm, bias = _norm(layer.attn_norm), layer.qkv.bias
            y = rms_norm_linear(x, *norm, qkv, bias, gated=False, dtype=x.dtype)
            values, stats = self._attend(index, y, lengths, cache, span, SPLITS)
            x = merge_project(values, stats, out, x)
            y = rms_norm_linear(x, *_norm(layer.mlp_norm), wide, None, gated=True, dtype=dtype)
            x = project(y, down, x)
        bias = lm.head.bias
        return rms_norm_linear(x, *_norm(lm.norm), self._head, bias, gated=False, dtype=x.dtype)

    def _decode_medium(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        lm, dtype, ieee = self.lm, self.lm.head.weight.dtype, self.ieee
        norms = [*(_norm(layer.attn_norm) for layer in self._layers), _norm(lm.norm)]
        x = embed(ids, lm.embedding.weight)
        y = add_norm(x, None, *norms[0], dtype)
        for index, (layer, norm) in enumerate(zip(self._layers, norms[1:], strict=True)):
            scale, eps = _norm(layer.mlp_norm)
            weight, bias = layer.qkv.weight, layer.qkv.bias
            qkv = batch_linear(y, weight, bias, dtype=dtype, ieee=ieee)
            values, _ = self._attend(index, qkv, lengths, cache, span)
            unscaled = add_linear(values.flatten(1), layer.out.weight, x, scale, ieee=ieee)
            y = gated_linear(unscaled, eps, layer.gate_up.weight, ieee=ieee)
            delta = split_linear(y, layer.down.weight, DOWN_SPLITS, ieee=ieee)
            y = add_norm(x, delta, *norm, dtype)
        return batch_linear(y, lm.head.weight, lm.head.bias, dtype=x.dtype, ieee=ieee)

    def _forward_large(
        self, ids: Tensor, attend: Callable[[int, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """ids [B] -> the residual [B, hidden] and what is to be added to it [1, B, hidden];
        `attend` turns the projections of a layer [B, ...] into its heads' values."""
        lm, dtype = self.lm, self.lm.head.weight.dtype
        x = embed(ids, lm.embedding.weight)
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            y = add_norm(x, delta, *_norm(layer.attn_norm), dtype)
            values = attend(index, F.linear(y, layer.qkv.weight, layer.qkv.bias))
            delta = F.linear(values, layer.out.weight)[None]
            y = add_norm(x, delta, *_norm(layer.mlp_norm), dtype)
            delta = F.linear(gate(F.linear(y, layer.gate_up.weight)), layer.down.weight)[None]
        assert delta is not None
        return x, delta

    def _last_norm(self, x: Tensor, delta: Tensor) -> Tensor:
        return add_norm(x, delta, *_norm(self.lm.norm), self.lm.head.weight.dtype)

    def _attend(
        self,
        layer: int,
        qkv: Tensor,
        lengths: Tensor,
        cache: KVCache,
        span: int,
        splits: int = 1,
    ) -> tuple[Tensor, Tensor]:
        config = self.lm.config
        return attend_decode(
            qkv.view(len(qkv), -1, config.head_dim),
            self._rotary,
            lengths,
            cache.keys[layer],
            cache.values[layer],
            heads=config.heads,
            span=span,
            splits=splits,
            ieee=self.ieee,
        )


def _norm(norm: torch.nn.Module) -> tuple[Tensor, float]:
    assert isinstance(norm, torch.nn.RMSNorm)
    assert norm.eps is not None
    return norm.weight, norm.eps


def _matrix(lm: SpeechLM, layer: torch.nn.Linear) -> tuple[Tensor, Tensor | None]:
    """A layer's weight as `linear_few.Matrix`."""
    if not lm.eight_bits:
        return layer.weight, None
    packed = int8.packed({"weight": layer.weight})
    return packed["weight"], packed["weight" + int8.SCALE]
