"""A decoding step of the speech LM in few launches, for a GPU. `SpeechLM.extend` is its reference.

Knows no request. Up to ROWS rows, each layer is five kernels of ours that read every weight once;
for more, matrix products are the library's and what lies between them ours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.models.kernels import AVAILABLE
from cosyserve.models.lm import KVCache, Layer, SpeechLM

ROWS = 16  # as of the kernels' tiles
PROGRAMS = 128  # about as many as a GPU runs at once
MOST_SPLITS = 8  # of a row's keys


def fused(lm: SpeechLM, positions: int) -> FusedLM | None:
    """What decodes where the kernels are quick: float16 can't hold products before their norm, and
    float32 has no matrix units."""
    weight = lm.head.weight
    able = weight.is_cuda and weight.dtype is torch.bfloat16
    return FusedLM(lm, positions) if able and AVAILABLE else None


class FusedLM:
    def __init__(self, lm: SpeechLM, positions: int) -> None:
        config, weight = lm.config, lm.head.weight
        self.lm = lm
        # Matrix units round float32, which nobody asks for who asks for float32.
        self.exact = weight.dtype is torch.float32
        exponent = torch.arange(0, config.head_dim, 2, device=weight.device) / config.head_dim
        position = torch.arange(positions, device=weight.device)
        angle = position[:, None] * config.rope_theta**-exponent
        self._rotary = torch.cat((angle.cos(), angle.sin()), dim=1)

    def logits(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        """Appends ids [B] to rows that hold `lengths` [B] positions -> float32 [B, classes]."""
        return (self._few if len(ids) <= ROWS else self._many)(ids, lengths, cache, span)

    def draw(
        self,
        logits: Tensor,
        ints: Tensor,
        floats: Tensor,
        outcome: Tensor,
        slots: Tensor | None,
        most: int,
    ) -> None:
        """`drawing.draw` of the lines `slots`, or of the first ones, in one launch."""
        from cosyserve.models.kernels.draw import draw

        draw(logits, ints, floats, outcome, slots, self.lm.config, most)

    def _few(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        from cosyserve.models.kernels.linear import merge_project, norm_linear, project

        lm, exact = self.lm, self.exact
        programs = len(ids) * lm.config.kv_heads
        # At least two, so that the product behind always merges.
        splits = max(2, min(MOST_SPLITS, PROGRAMS // programs, -(-span // 64)))
        dtype = lm.head.weight.dtype
        x = F.embedding(ids, lm.embedding.weight).float()[None]
        for index, layer in enumerate(lm.layers):
            assert isinstance(layer, Layer)
            qkv = norm_linear(
                x,
                *_norm(layer.attn_norm),
                layer.qkv.weight,
                layer.qkv.bias,
                gated=False,
                dtype=torch.float32,
                exact=exact,
            )
            found, stats = self._attend(index, qkv, lengths, cache, span, splits)
            x = merge_project(found, stats, layer.out.weight, x, exact=exact)
            y = norm_linear(
                x,
                *_norm(layer.mlp_norm),
                layer.gate_up.weight,
                None,
                gated=True,
                dtype=dtype,
                exact=exact,
            )
            x = project(y, layer.down.weight, x, exact=exact)
        return norm_linear(
            x,
            *_norm(lm.norm),
            lm.head.weight,
            lm.head.bias,
            gated=False,
            dtype=torch.float32,
            exact=exact,
        )

    def _many(self, ids: Tensor, lengths: Tensor, cache: KVCache, span: int) -> Tensor:
        from cosyserve.models.kernels.elementwise import add_norm, gate

        lm, dtype = self.lm, self.lm.head.weight.dtype
        x = F.embedding(ids, lm.embedding.weight).float()
        delta: Tensor | None = None
        for index, layer in enumerate(lm.layers):
            assert isinstance(layer, Layer)
            y = add_norm(x, delta, *_norm(layer.attn_norm), dtype)
            qkv = F.linear(y, layer.qkv.weight, layer.qkv.bias)
            found, _ = self._attend(index, qkv, lengths, cache, span, 1)
            delta = F.linear(found.flatten(1), layer.out.weight)
            y = add_norm(x, delta, *_norm(layer.mlp_norm), dtype)
            delta = F.linear(gate(F.linear(y, layer.gate_up.weight)), layer.down.weight)
        y = add_norm(x, delta, *_norm(lm.norm), dtype)
        return lm.logits(y)

    def _attend(
        self, layer: int, qkv: Tensor, lengths: Tensor, cache: KVCache, span: int, splits: int
    ) -> tuple[Tensor, Tensor]:
        from cosyserve.models.kernels.attention import attend

        config = self.lm.config
        return attend(
            qkv.view(len(qkv), -1, config.head_dim),
            self._rotary,
            lengths,
            cache.keys[layer],
            cache.values[layer],
            heads=config.heads,
            span=span,
            splits=splits,
            exact=self.exact,
        )


def _norm(norm: torch.nn.Module) -> tuple[Tensor, float]:
    assert isinstance(norm, torch.nn.RMSNorm)
    assert norm.eps is not None
    return norm.weight, norm.eps
