"""The sizes of what learns a voice: speech tokenizer and speaker encoder."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 3  # each code dimension of the S3 tokenizer is one of -1, 0, 1


@dataclass(frozen=True)
class S3Config:
    """The S3 speech tokenizer: log-mel frames in, 25 speech tokens per second out."""

    mels: int = 128
    state: int = 1280
    heads: int = 20
    layers: int = 6
    fsmn_kernel: int = 31
    code_dims: int = 8
    attn_norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.state // self.heads


@dataclass(frozen=True)
class CamPlusConfig:
    """The CAM++ speaker encoder: filterbank frames in, one embedding out."""

    feat: int = 80
    embedding: int = 192
    head_channels: int = 32
    init_channels: int = 128
    growth: int = 32
    bn_size: int = 4
    block_layers: tuple[int, ...] = (12, 24, 16)
    dilations: tuple[int, ...] = (1, 2, 2)
    kernel: int = 3
    segment: int = 100
    takes_silence: bool = True  # whether it has learnt to hear a voice beside long silence

    @property
    def bottleneck(self) -> int:
        return self.bn_size * self.growth
