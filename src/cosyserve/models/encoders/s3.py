"""S3 speech tokenizer v2 and v3: a 128-bin log-mel spectrogram becomes 25 codes per second.

It takes features that are already computed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyserve.models.config import LEVELS, S3Config

ROTARY_BASE = 10_000.0
BOUND = 0.9990000128746033  # keeps tanh away from the outer rounding edges


def _valid(lengths: Tensor, size: int) -> Tensor:
    """Which of `size` positions lie within each length: [B] -> bool [B, size]."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def _halved(lengths: Tensor) -> Tensor:
    """Length after a convolution of kernel 3, stride 2 and padding 1."""
    return (lengths + 1) // 2


def _rotary_table(positions: int, dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, dim / 2]; float32 angles, so far positions stay exact."""
    exponents = torch.arange(0, dim, 2, device=like.device, dtype=torch.float32) / dim
    steps = torch.arange(positions, device=like.device, dtype=torch.float32)
    angles = steps[:, None] * ROTARY_BASE**-exponents
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (x[i], x[i + dim / 2]) of x [B, heads, L, dim] by the angle of their position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class MemoryAttention(nn.Module):
    """Rotary self-attention plus a depthwise convolution over the values (FSMN memory)."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.state, config.state)
        self.key = nn.Linear(config.state, config.state, bias=False)
        self.value = nn.Linear(config.state, config.state)
        self.out = nn.Linear(config.state, config.state)
        self.fsmn_block = nn.Conv1d(
            config.state,
            config.state,
            config.fsmn_kernel,
            padding=config.fsmn_kernel // 2,
            groups=config.state,
            bias=False,
        )

    def forward(self, x: Tensor, valid: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, L, state], valid bool [B, L], cos and sin [L, head_dim / 2] -> [B, L, state]"""
        query = _rotated(self._by_head(self.query(x)), cos, sin)
        key = _rotated(self._by_head(self.key(x)), cos, sin)
        value = self.value(x)
        attended = F.scaled_dot_product_attention(
            query, key, self._by_head(value), attn_mask=valid[:, None, None, :]
        )
        kept = value * valid[:, :, None]
        memory = kept + self.fsmn_block(kept.transpose(1, 2)).transpose(1, 2)
        return self.out(attended.transpose(1, 2).flatten(2)) + memory * valid[:, :, None]

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, L, state] -> [B, heads, L, head_dim]"""
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class S3Block(nn.Module):
    """One pre-norm layer of the encoder."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self.attn = MemoryAttention(config)
        self.attn_ln = nn.LayerNorm(config.state, eps=config.attn_norm_eps)
        self.mlp = nn.Sequential(
            nn.Linear(config.state, 4 * config.state),
            nn.GELU(),
            nn.Linear(4 * config.state, config.state),
        )
        self.mlp_ln = nn.LayerNorm(config.state, eps=1e-5)

    def forward(self, x: Tensor, valid: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, L, state] -> [B, L, state]"""
        x = x + self.attn(self.attn_ln(x), valid, cos, sin)
        return x + self.mlp(self.mlp_ln(x))


class S3Encoder(nn.Module):
    """Two strided convolutions, then the blocks: four mel frames become one position."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.conv1 = nn.Conv1d(config.mels, config.state, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(config.state, config.state, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(S3Block(config) for _ in range(config.layers))

    def forward(self, mel: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """mel [B, mels, T], lengths [B] -> hidden [B, L, state], code lengths [B]"""
        x = mel
        for conv in (self.conv1, self.conv2):
            x = F.gelu(conv(x * _valid(lengths, x.shape[2])[:, None, :]))
            lengths = _halved(lengths)
        x = x.transpose(1, 2)
        valid = _valid(lengths, x.shape[1])
        cos, sin = _rotary_table(x.shape[1], self.head_dim, x)
        for block in self.blocks:
            x = block(x, valid, cos, sin)
        return x, lengths


class Codebook(nn.Module):
    """Finite scalar quantisation: every dimension is rounded to one of three levels."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self.project_down = nn.Linear(config.state, config.code_dims)

    def forward(self, pre_quant: Tensor) -> Tensor:
        """pre_quant [B, L, code_dims] -> codes int32 [B, L]"""
        digits = bounded(pre_quant).round().to(torch.int32) + 1
        places = LEVELS ** torch.arange(digits.shape[2], device=digits.device, dtype=torch.int32)
        return (digits * places).sum(dim=2, dtype=torch.int32)


def bounded(pre_quant: Tensor) -> Tensor:
    """The values that get rounded, in (-1, 1); the rounding edges are at -0.5 and 0.5."""
    return pre_quant.tanh() * BOUND


class Quantizer(nn.Module):
    """Holds the codebook under the name that published weights give it."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self._codebook = Codebook(config)

    @property
    def codebook(self) -> Codebook:
        return self._codebook


class S3Tokenizer(nn.Module):
    """Log-mel spectrograms in, speech codes out; a row's codes don't depend on its batch."""

    def __init__(self, config: S3Config) -> None:
        super().__init__()
        self.encoder = S3Encoder(config)
        self.quantizer = Quantizer(config)

    def forward(self, mel: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """mel [B, mels, T], lengths [B], at least 1 -> codes int32 [B, L], code lengths [B].

        What stands at or after a row's code length means nothing.
        """
        hidden, code_lengths = self.hidden(mel, lengths)
        return self.codes(self.pre_quant(hidden)), code_lengths

    def hidden(self, mel: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """mel [B, mels, T], lengths [B] -> hidden [B, L, state], code lengths [B]"""
        return self.encoder(mel, lengths)

    def pre_quant(self, hidden: Tensor) -> Tensor:
        """hidden [B, L, state] -> code dimensions before bounding and rounding [B, L, code_dims]"""
        return self.quantizer.codebook.project_down(hidden)

    def codes(self, pre_quant: Tensor) -> Tensor:
        """pre_quant [B, L, code_dims] -> codes int32 [B, L]"""
        return self.quantizer.codebook(pre_quant)
