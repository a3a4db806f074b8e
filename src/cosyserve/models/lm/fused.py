"""The speech LM in few launches, for a GPU. `SpeechLM.extend` is its reference.

Up to SMALL_BATCH rows, each layer of a decoding step is five kernels of ours that read every weight
once, in eight bits if the LM says so. Up to `linear_batch.most_rows`, rows or ids of prompts, it is
six or seven with matrix units. For more, matrix products are the library's and what lies between
them ours.
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
    most_rows,
    split_linear,
)
from cosyserve.models.lm.kernels.linear_few import merge_project, project, rms_norm_linear
from cosyserve.models.lm.kernels.prefill_attention import attend as attend_prefill
from cosyserve.models.lm.lm import KVCache, Layer, SpeechLM

SMALL_BATCH = 2  # rows that a program computes one after another
DOWN_SPLITS = 4  # of the longest products' sums: else too few programs would have all the work
SPLITS = 4  # of a few rows' keys

# Turns the projections of a layer, by its number, [B, ...] into its heads' values.
Attend = Callable[[int, Tensor], Tensor]


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

        def attend(layer: int, qkv: Tensor) -> Tensor:
            values, _ = self._attend(layer, qkv, lengths, cache, span)
            return values.flatten(1)

        return self._classify(self._forward(ids, attend))

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

        return self._classify(self._forward(ids, attend).index_select(0, last))

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

    def _forward(self, ids: Tensor, attend: Attend) -> Tensor:
        """ids [B] -> what the last norm leaves of them [B, hidden]."""
        lm, dtype = self.lm, self.lm.head.weight.dtype
        forward = self._medium if len(ids) <= most_rows(ids.device) else self._large
        norms = [*(_norm(layer.attn_norm) for layer in self._layers), _norm(lm.norm)]
        x = embed(ids, lm.embedding.weight)
        y = add_norm(x, None, *norms[0], dtype)
        for index, norm in enumerate(norms[1:]):
            y = add_norm(x, forward(index, x, y, attend), *norm, dtype)
        return y

    def _medium(self, index: int, x: Tensor, y: Tensor, attend: Attend) -> Tensor:
        """A layer of y, the norm of the residual x [B, hidden], which it changes -> what is still
        to be added to x [parts, B, hidden]."""
        layer, ieee = self._layers[index], self.ieee
        scale, eps = _norm(layer.mlp_norm)
        qkv = batch_linear(y, layer.qkv.weight, layer.qkv.bias, dtype=y.dtype, ieee=ieee)
        unscaled = add_linear(attend(index, qkv), layer.out.weight, x, scale, ieee=ieee)
        wide = gated_linear(unscaled, eps, layer.gate_up.weight, ieee=ieee)
        return split_linear(wide, layer.down.weight, DOWN_SPLITS, ieee=ieee)

    def _large(self, index: int, x: Tensor, y: Tensor, attend: Attend) -> Tensor:
        """As `_medium`, of any number of rows."""
        layer = self._layers[index]
        values = attend(index, F.linear(y, layer.qkv.weight, layer.qkv.bias))
        y = add_norm(x, F.linear(values, layer.out.weight)[None], *_norm(layer.mlp_norm), y.dtype)
        return F.linear(gate(F.linear(y, layer.gate_up.weight)), layer.down.weight)[None]

    def _classify(self, y: Tensor) -> Tensor:
        head = self.lm.head
        if len(y) > most_rows(y.device):
            return self.lm.logits(y)
        return batch_linear(y, head.weight, head.bias, dtype=torch.float32, ieee=self.ieee)

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
