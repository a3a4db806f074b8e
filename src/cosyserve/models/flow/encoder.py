"""Upsampling conformer: token embeddings in, two frames per token out.

The caller says which tokens are look-ahead only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import EncoderConfig
from cosyserve.models.flow.lookahead import PreLookahead
from cosyserve.models.flow.masks import RowChunks, attention_bias, chunk_bias, chunks_bias, valid


@dataclass(frozen=True)
class EncoderCache:
    """What earlier chunks leave behind for the next: conv inputs and attention keys/values.

    after_lookahead [B, size, 2], upsampled [B, size, 4]; attention: one [B, heads, t, 2*head_dim]
    per block, tokens for the first blocks and frames for the upsampled ones. Oldest first.
    """

    after_lookahead: Tensor
    upsampled: Tensor
    attention: tuple[Tensor, ...]


class Embed(nn.Module):
    """Linear and LayerNorm, scaled as the relative position encoding wants it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(size, size), nn.LayerNorm(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) * math.sqrt(x.shape[-1])


class Upsample(nn.Module):
    """Each token twice, then a causal convolution."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(size, size, 5)

    def forward(self, x: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, D], left [B, D, 4] -> [B, 2T, D], the next left."""
        y = torch.cat((left, x.transpose(1, 2).repeat_interleave(2, dim=2)), dim=2)
        return self.conv(y).transpose(1, 2), y[:, :, -4:]


class RelativeAttention(nn.Module):
    """Self-attention whose scores also depend on the distance of query and key."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.linear_v = nn.Linear(size, size)
        self.linear_out = nn.Linear(size, size)
        self.linear_pos = nn.Linear(size, size, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, size // heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, size // heads))

    def forward(
        self, x: Tensor, distances: Tensor, bias: Tensor | None, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, D], distances [T + K - 1, D] -> [B, T, D] and the K keys and values
        [B, heads, K, 2*head_dim]: those of `past`, then those of x.
        """
        batch, length, size = x.shape
        split = (batch, length, self.heads, size // self.heads)
        q = self.linear_q(x).view(split)
        k = self.linear_k(x).view(split).transpose(1, 2)
        v = self.linear_v(x).view(split).transpose(1, 2)
        if past is not None:
            old_k, old_v = past.chunk(2, dim=-1)
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        p = self.linear_pos(distances).view(-1, *split[2:]).transpose(0, 1)
        keys = k.shape[2]
        by_distance = (q + self.pos_bias_v).transpose(1, 2) @ p.transpose(-1, -2)
        scores = shift(by_distance, keys) / math.sqrt(split[3])
        scores = scores if bias is None else scores + bias
        y = F.scaled_dot_product_attention((q + self.pos_bias_u).transpose(1, 2), k, v, scores)
        y = self.linear_out(y.transpose(1, 2).flatten(2))
        return y, torch.cat((k, v), dim=-1)


def encode_distances(queries: int, keys: int, size: int, device: torch.device) -> Tensor:
    """[queries + keys - 1, size]: sinusoids of the distances keys - 1, ..., 0, ..., -(queries - 1).

    A query stands `distance` positions right of its key; the last query stands at the last key.
    """
    distance = torch.arange(keys - 1, -queries, -1, device=device, dtype=torch.float32)
    channel = torch.arange(0, size, 2, device=device, dtype=torch.float32)
    angle = distance[:, None] * torch.exp(channel * (-math.log(10000.0) / size))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def shift(by_distance: Tensor, keys: int) -> Tensor:
    """[B, H, T, T + K - 1] by distance -> [B, H, T, K] by key: row i reads from column T-1-i on."""
    batch, heads, queries, columns = by_distance.shape
    flat = F.pad(by_distance, (0, 1)).flatten(2)  # one longer rows: each starts one column earlier
    flat = flat[:, :, queries - 1 : queries - 1 + queries * columns]
    return flat.view(batch, heads, queries, columns)[..., :keys]


class ConformerBlock(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(config.size, config.heads)
        self.feed_forward = nn.ModuleDict(
            {
                "w_1": nn.Linear(config.size, config.feed_forward),
                "w_2": nn.Linear(config.feed_forward, config.size),
            }
        )
        self.norm_mha = nn.LayerNorm(config.size, eps=1e-12)
        self.norm_ff = nn.LayerNorm(config.size, eps=1e-12)

    def forward(
        self, x: Tensor, distances: Tensor, bias: Tensor | None, past: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        y, keys_values = self.self_attn(self.norm_mha(x), distances, bias, past)
        x = x + y
        x = x + self.feed_forward["w_2"](F.silu(self.feed_forward["w_1"](self.norm_ff(x))))
        return x, keys_values


class UpsamplingConformer(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embed(config.size)
        self.pre_lookahead_layer = PreLookahead(config.size, config.size, config.lookahead)
        self.encoders = nn.ModuleList(ConformerBlock(config) for _ in range(config.blocks))
        self.up_layer = Upsample(config.size)
        self.up_embed = Embed(config.size)
        self.up_encoders = nn.ModuleList(ConformerBlock(config) for _ in range(config.up_blocks))
        self.after_norm = nn.LayerNorm(config.size)

    def forward(
        self, tokens: Tensor, lengths: Tensor, inside: Tensor | None, size: int, streaming: bool
    ) -> Tensor:
        """Whole rows: tokens [B, T, D] -> frames [B, 2*size, D].

        Of the `lengths` [B] tokens of a row those `inside` [B, size] become frames (None: all
        of size), the others are only looked at. Past its frames a row's output has no meaning.
        """
        chunk = self.config.chunk if streaming else 0
        x = self.embed(tokens) * valid(lengths, tokens.shape[1])[..., None]
        x = F.pad(x, (0, 0, 0, size + self.config.lookahead - tokens.shape[1]))
        blank = x.new_zeros(len(x), self.config.size, 2)
        x, _ = self.pre_lookahead_layer(x[:, :size], x[:, size:], blank)
        bias = attention_bias(inside, size, chunk, x)
        inside = None if inside is None else inside.repeat_interleave(2, dim=1)
        return self._upsampled(x, bias, attention_bias(inside, 2 * size, 2 * chunk, x))

    def chunked(self, tokens: Tensor, given: Tensor, chunks: RowChunks) -> Tensor:
        """What `extend` gives for all chunks of rows, prompts first: [B, T, D] -> [B, 2*size, D].

        Behind its prompt, and behind all, a row has `lookahead` tokens that are only looked at;
        those that are not `given` [B, T] are as zero.
        """
        x, ahead = self.embed(tokens) * given[..., None], self.config.lookahead
        row, at = (torch.arange(n, device=x.device) for n in chunks.end.shape)
        own = at + ahead * (at >= chunks.prompt)
        seen = own[..., None] + torch.arange(ahead + 1, device=x.device)
        x = self.pre_lookahead_layer.windows(x[row[:, None, None], seen])
        return self._upsampled(x, *(chunks_bias(chunks, n, None, x) for n in (1, 2)))

    def _upsampled(self, x: Tensor, bias: Tensor | None, up_bias: Tensor | None) -> Tensor:
        """Whole rows [B, size, D], with what tokens and then frames may see -> [B, 2*size, D]."""
        x, _ = self._blocks(self.encoders, x, bias, None)
        x, _ = self.up_layer(x, x.new_zeros(len(x), self.config.size, 4))
        x, _ = self._blocks(self.up_encoders, self.up_embed(x), up_bias, None)
        return self.after_norm(x)

    def extend(
        self, tokens: Tensor, cache: EncoderCache | None, last: bool, chunk: int | None = None
    ) -> tuple[Tensor, EncoderCache]:
        """What comes next: tokens [B, T, D] -> frames [B, 2*(T - lookahead), D], or 2*T at the end.

        They are one chunk, or chunks of `chunk` tokens. Inside a chunk attention is full, and it
        sees all that came before.
        """
        x = self.embed(tokens)
        if last:
            x = F.pad(x, (0, 0, 0, self.config.lookahead))
        x, context = x[:, : -self.config.lookahead], x[:, -self.config.lookahead :]
        blocks = len(self.encoders)
        blank = x.new_zeros(len(x), self.config.size, 4)
        past = cache.attention if cache else None
        x, left = self.pre_lookahead_layer(
            x, context, cache.after_lookahead if cache else blank[:, :, :2]
        )
        keys, chunk = x.shape[1] + (past[0].shape[2] if past else 0), chunk or x.shape[1]
        bias, up_bias = (chunk_bias(n * x.shape[1], n * keys, n * chunk, x) for n in (1, 2))
        x, tokens_kv = self._blocks(self.encoders, x, bias, past and past[:blocks])
        x, upsampled = self.up_layer(x, cache.upsampled if cache else blank)
        x = self.up_embed(x)
        x, frames_kv = self._blocks(self.up_encoders, x, up_bias, past and past[blocks:])
        return self.after_norm(x), EncoderCache(left, upsampled, tokens_kv + frames_kv)

    def _blocks(
        self, blocks: nn.ModuleList, x: Tensor, bias: Tensor | None, past: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        keys = x.shape[1] + (past[0].shape[2] if past else 0)
        distances = encode_distances(x.shape[1], keys, x.shape[2], x.device).to(x.dtype)
        kept = []
        for index, block in enumerate(blocks):
            x, keys_values = block(x, distances, bias, past[index] if past else None)
            kept.append(keys_values)
        return x, tuple(kept)
