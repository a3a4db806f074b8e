"""The speech LM: Qwen2 over text and speech ids, with a cache that the caller owns.

Ids in, logits out: sampling and the end of speech are the caller's.
"""

from __future__ import annotations

import math
import mmap
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import LMConfig

BLOCK = 64  # rows of weights
FEW_ROWS = range(3, 17)  # of input; one and two are quick, many pay for the copy


@dataclass(frozen=True)
class KVCache:
    """Keys and values of all layers, [layers, rows, kv_heads, capacity, head_dim]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(
        cls,
        config: LMConfig,
        rows: int,
        capacity: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> KVCache:
        shape = (config.layers, rows, config.kv_heads, capacity, config.head_dim)
        if torch.device(device).type == "cpu":
            return cls(_untouched(shape, dtype), _untouched(shape, dtype))
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]


def _untouched(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory and no time until they are written, unlike torch's."""
    if sys.platform == "win32":
        return torch.zeros(shape, dtype=dtype)
    memory = mmap.mmap(
        -1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    return torch.frombuffer(memory, dtype=dtype).view(shape)


class Linear(nn.Linear):
    """A linear layer that multiplies few rows block by block on a CPU: its product copies weights
    before it uses them, which takes twice as long as reading them unless copies stay in the cache.
    """

    def forward(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.shape[-1]
        whole = self.out_features - self.out_features % BLOCK
        if not (whole and rows in FEW_ROWS and x.device.type == "cpu" and x.dtype is torch.float32):
            return super().forward(x)
        flat = x.reshape(rows, -1)
        blocks = self.weight[:whole].view(-1, BLOCK, self.in_features)
        y = torch.bmm(flat.expand(len(blocks), -1, -1), blocks.transpose(1, 2))
        y = y.transpose(0, 1).reshape(rows, whole)
        if whole < self.out_features:
            y = torch.cat((y, F.linear(flat, self.weight[whole:])), dim=1)
        if self.bias is not None:
            y += self.bias
        return y.view(*x.shape[:-1], -1)


class Layer(nn.Module):
    """Pre-norm attention (grouped queries, rotary positions), then a gated MLP."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.kv_heads = config.kv_heads
        self.head_dim = config.head_dim
        kv = config.kv_heads * config.head_dim
        self.attn_norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.qkv = Linear(config.hidden, config.hidden + 2 * kv)
        self.out = Linear(config.hidden, config.hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.gate_up = Linear(config.hidden, 2 * config.intermediate, bias=False)
        self.down = Linear(config.intermediate, config.hidden, bias=False)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: _LayerCache | None
    ) -> Tensor:
        """x [B, T, hidden], mask [B or 1, 1, group * T, keys] -> [B, T, hidden]."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(batch, length, -1, self.head_dim).transpose(1, 2)
        turned, v = rotate(qkv[:, : -self.kv_heads], *rotary), qkv[:, -self.kv_heads :]
        q, k = turned[:, : self.heads], turned[:, self.heads :]
        if cache is not None:
            k, v = cache.extend(k, v)
        # The queries of one KV head become rows of one attention: K and V are never repeated.
        q = q.reshape(batch, self.kv_heads, -1, self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        y = y.reshape(batch, self.heads, length, self.head_dim).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


@dataclass(frozen=True)
class _LayerCache:
    keys: Tensor  # [rows, kv_heads, span, head_dim]
    values: Tensor
    positions: Tensor  # [B, T] where to write
    slots: Tensor | None  # [B] which rows; None: the first B, in order

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self._extend(self.keys, k), self._extend(self.values, v)

    def _extend(self, kept: Tensor, new: Tensor) -> Tensor:
        if self.slots is None:
            rows = kept[: len(new)]
            return rows.scatter_(2, self.positions[:, None, :, None].expand_as(new), new)
        kept[self.slots[:, None], :, self.positions] = new.transpose(1, 2)
        return kept.index_select(0, self.slots)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, halves rotated: x [B, H, T, D], cos and sin [B, 1, T, D]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class SpeechLM(nn.Module):
    """Text and speech ids in, logits over the speech classes out."""

    eight_bits = False  # whether kernels that read all weights for few rows may round them to int8

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.head = Linear(config.hidden, config.classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Whole sequences without a cache: ids [B, T] -> hidden states [B, T, hidden]."""
        length = ids.shape[1]
        positions = torch.arange(length, device=ids.device)[None]
        mask = positions[:, :, None] >= positions[:, None, :]
        return self._run(ids, positions, mask, None, None)

    def extend(
        self, ids: Tensor, start: Tensor, cache: KVCache, span: int, slots: Tensor | None = None
    ) -> Tensor:
        """Appends ids [B, T] to rows that hold `start` [B] positions -> hidden [B, T, hidden].

        Prefill and decoding step are this one function; its shapes are static and nothing
        depends on data, so it can be captured as a CUDA graph. `span` is how many cache positions
        are looked at, at least start + T of every row that matters: what others would write behind
        it falls on its last position. `slots` [B] are the rows of the cache; None: the first B.
        Rows shorter than T are padded on the right: what the padding writes lies behind the row's
        end and is overwritten before it is ever seen.
        """
        positions = start[:, None] + torch.arange(ids.shape[1], device=ids.device)
        positions = positions.clamp(max=span - 1)
        mask = torch.arange(span, device=ids.device) <= positions[:, :, None]
        return self._run(ids, positions, mask, cache, slots)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> float32 [..., classes]."""
        return self.head(hidden).float()

    def _run(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        cache: KVCache | None,
        slots: Tensor | None,
    ) -> Tensor:
        config = self.config
        x = self.embedding(ids)
        exponent = torch.arange(0, config.head_dim, 2, device=ids.device) / config.head_dim
        angle = positions[..., None] * config.rope_theta**-exponent
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        rotary = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        span = mask.shape[-1]
        mask = mask.repeat(1, config.heads // config.kv_heads, 1)[:, None]
        for index, layer in enumerate(self.layers):
            rows = cache and _LayerCache(
                cache.keys[index, :, :, :span], cache.values[index, :, :, :span], positions, slots
            )
            x = layer(x, rotary, mask, rows)
        return self.norm(x)
