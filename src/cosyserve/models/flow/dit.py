"""The Step-Audio2 flow estimator: a causal-convolution diffusion transformer with caches.

There is no position encoding, so the keys of earlier chunks are simply more keys. Module names
are those of the published checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import DiTConfig


@dataclass(frozen=True)
class DiTCache:
    """What one Euler step of earlier chunks leaves behind, oldest first.

    conv [depth, B, 2*hidden, 2]: the last inputs of both convolutions of each block;
    attention [depth, B, heads, t, 2*head_dim]: keys and values.
    """

    conv: Tensor
    attention: Tensor


class DiTAttention(nn.Module):
    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        inner = config.heads * config.head_dim
        self.to_q = nn.Linear(config.hidden, inner)
        self.to_k = nn.Linear(config.hidden, inner)
        self.to_v = nn.Linear(config.hidden, inner)
        self.q_norm = nn.LayerNorm(config.head_dim)
        self.k_norm = nn.LayerNorm(config.head_dim)
        self.proj = nn.Linear(inner, config.hidden)

    def forward(
        self, x: Tensor, bias: Tensor | None, past: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.to_q, self.to_k, self.to_v)
        )
        y, keys_values = attend(self.q_norm(q), self.k_norm(k), v, bias, past)
        return self.proj(y), keys_values


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, past: Tensor | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """q, k, v [B, heads, T, D], past [B, heads, t, 2 * D] -> [B, T, heads * D] and all keys and
    values, those of `past` first."""
    if past is not None:
        old_k, old_v = past.chunk(2, dim=-1)
        k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
    y = F.scaled_dot_product_attention(q, k, v, bias)
    return y.transpose(1, 2).flatten(2), (k, v)


class DiTConvBlock(nn.Module):
    """Causal convolution, LayerNorm, Mish, causal convolution."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.block = nn.ModuleDict(
            {
                "1": nn.Conv1d(hidden, hidden, 3),
                "3": nn.LayerNorm(hidden),
                "6": nn.Conv1d(hidden, hidden, 3),
            }
        )

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, C], past [B, 2C, 2]: the two frames before x at both convolutions."""
        first, second = past.chunk(2, dim=1)
        h = torch.cat((first, x.transpose(1, 2)), dim=2)
        y = F.mish(self.block["3"](self.block["1"](h).transpose(1, 2)))
        y = torch.cat((second, y.transpose(1, 2)), dim=2)
        kept = torch.cat((h[:, :, -2:], y[:, :, -2:]), dim=1)
        return self.block["6"](y).transpose(1, 2), kept


class DiTBlock(nn.Module):
    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        hidden = config.hidden
        inner = int(config.mlp_ratio * hidden)
        self.attn = DiTAttention(config)
        self.conv = DiTConvBlock(hidden)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(hidden, inner), "fc2": nn.Linear(inner, hidden)})
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 9 * hidden))

    def forward(
        self, x: Tensor, time: Tensor, bias: Tensor | None, conv: Tensor, past: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        modulation = self.adaLN_modulation(time)[:, None].chunk(9, dim=-1)
        attn_shift, attn_scale, attn_gate = modulation[:3]
        mlp_shift, mlp_scale, mlp_gate = modulation[3:6]
        conv_shift, conv_scale, conv_gate = modulation[6:]
        y, keys_values = self.attn(modulate(x, attn_shift, attn_scale), bias, past)
        x = x + attn_gate * y
        y, kept = self.conv(modulate(x, conv_shift, conv_scale), conv)
        x = x + conv_gate * y
        y = self.mlp["fc1"](modulate(x, mlp_shift, mlp_scale))
        x = x + mlp_gate * self.mlp["fc2"](F.gelu(y, approximate="tanh"))
        return x, kept, keys_values


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


class FinalLayer(nn.Module):
    def __init__(self, hidden: int, mel: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, mel)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(time)[:, None].chunk(2, dim=-1)
        return self.linear(modulate(x, shift, scale))


class DiT(nn.Module):
    def __init__(self, config: DiTConfig, mel: int) -> None:
        super().__init__()
        self.config = config
        self.t_embedder = nn.Module()
        self.t_embedder.mlp = nn.Sequential(
            nn.Linear(config.frequency_size, config.hidden),
            nn.SiLU(),
            nn.Linear(config.hidden, config.hidden),
        )
        self.in_proj = nn.Linear(4 * mel, config.hidden)  # x, mu, speaker, prompt
        self.blocks = nn.ModuleList(DiTBlock(config) for _ in range(config.depth))
        self.final_layer = FinalLayer(config.hidden, mel)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        """x, mu, prompt [B, mel, T], speaker [B, mel], t [B] -> [B, mel, T].

        bias: what `masks.attention_bias` gives.
        """
        return self._run(x, mu, speaker, prompt, t, bias, None)[0]

    def extend(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        cache: DiTCache | None,
    ) -> tuple[Tensor, DiTCache]:
        """The next chunk of frames; it sees itself and all that the cache holds."""
        y, conv, keys_values = self._run(x, mu, speaker, prompt, t, None, cache)
        attention = torch.stack([torch.cat(pair, dim=-1) for pair in keys_values])
        return y, DiTCache(torch.stack(conv), attention)

    def _run(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        bias: Tensor | None,
        cache: DiTCache | None,
    ) -> tuple[Tensor, list[Tensor], list[tuple[Tensor, Tensor]]]:
        time = self.embed_time(t, x.dtype)
        x = torch.cat((x, mu, speaker[..., None].expand_as(x), prompt), dim=1)
        x = self.in_proj(x.transpose(1, 2))
        blank = x.new_zeros(x.shape[0], 2 * self.config.hidden, 2)
        conv, attention = [], []
        for index, block in enumerate(self.blocks):
            x, kept, keys_values = block(
                x,
                time,
                bias,
                cache.conv[index] if cache else blank,
                cache.attention[index] if cache else None,
            )
            conv.append(kept)
            attention.append(keys_values)
        return self.final_layer(x, time).transpose(1, 2), conv, attention

    def embed_time(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        """t [B] -> [B, hidden]."""
        half = self.config.frequency_size // 2
        angle = time_angles(t, half, half)
        time = torch.cat((angle.cos(), angle.sin()), dim=-1).to(dtype)
        embedded: Tensor = self.t_embedder.mlp(time)  # type: ignore[operator]
        return embedded


def time_angles(t: Tensor, frequencies: int, span: int) -> Tensor:
    """t [B] -> [B, frequencies], each frequency 10000 ** (1 / span) below the one before."""
    index = torch.arange(frequencies, device=t.device)
    return 1000.0 * t.float()[:, None] * torch.exp(index * (-math.log(10000.0) / span))
