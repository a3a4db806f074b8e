"""The CosyVoice2 flow estimator: a causal U-Net with transformer blocks, one resolution.

All convolutions look left only, so padding on the right of a row never reaches its frames; only
attention needs to know where rows end. Rows that go on get what came before them as a `LookBack`.
Module names are those of the published checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import UNetConfig
from cosyserve.models.flow.encoder import EncoderCache


class LookBack:
    """What layers see of the positions before the first of these, one layer after another, and
    what those of the next ones will."""

    def __init__(self, before: Sequence[Tensor] = ()) -> None:
        """`before`: what `kept` was behind the positions before; nothing at the start of rows."""
        self._before = iter(before)
        self.kept: list[Tensor] = []

    def inputs(self, x: Tensor, reach: int) -> Tensor:
        """x [B, C, T] behind the `reach` inputs of a convolution that came before."""
        before = next(self._before, None)
        x = F.pad(x, (reach, 0)) if before is None else torch.cat((before, x), dim=2)
        self.kept.append(x[:, :, -reach:].clone())
        return x

    def keys(self, x: Tensor) -> Tensor:
        """x [B, H, T, D] behind all keys, or values, that came before."""
        before = next(self._before, None)
        x = x if before is None else torch.cat((before, x), dim=2)
        self.kept.append(x)
        return x


@dataclass(frozen=True)
class FlowPast:
    """What a U-Net flow keeps of a row's first chunks: `tokens` of them, prompt included; of each
    Euler step what `LookBack.kept` says."""

    tokens: int
    encoder: EncoderCache
    steps: tuple[Sequence[Tensor], ...]


class CausalConv(nn.Conv1d):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3)

    def forward(self, x: Tensor, back: LookBack | None = None) -> Tensor:
        return super().forward(back.inputs(x, 2) if back else F.pad(x, (2, 0)))


class ConvBlock(nn.Module):
    """Causal convolution, LayerNorm over channels, Mish."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.block = nn.ModuleDict({"0": CausalConv(inputs, outputs), "2": nn.LayerNorm(outputs)})

    def forward(self, x: Tensor, back: LookBack | None) -> Tensor:
        x = self.block["0"](x, back)
        return F.mish(self.block["2"](x.transpose(1, 2))).transpose(1, 2)


class ResNet(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), nn.Linear(time, outputs))
        self.block1 = ConvBlock(inputs, outputs)
        self.block2 = ConvBlock(outputs, outputs)
        self.res_conv = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor, back: LookBack | None) -> Tensor:
        h = self.block1(x, back) + self.mlp(time)[..., None]
        return self.block2(h, back) + self.res_conv(x)


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(channels, heads * head_dim, bias=False)
        self.to_k = nn.Linear(channels, heads * head_dim, bias=False)
        self.to_v = nn.Linear(channels, heads * head_dim, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(heads * head_dim, channels)])

    def forward(self, x: Tensor, bias: Tensor | None, back: LookBack | None) -> Tensor:
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.to_q, self.to_k, self.to_v)
        )
        if back:
            k, v = back.keys(k), back.keys(v)
        y = F.scaled_dot_product_attention(q, k, v, bias)
        return self.to_out[0](y.transpose(1, 2).flatten(2))


class Widening(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Linear(channels, 4 * channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.proj(x))


class FeedForward(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"0": Widening(channels), "2": nn.Linear(4 * channels, channels)})

    def forward(self, x: Tensor) -> Tensor:
        return self.net["2"](self.net["0"](x))


class TransformerBlock(nn.Module):
    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        channels = config.channels
        self.norm1 = nn.LayerNorm(channels)
        self.attn1 = Attention(channels, config.heads, config.head_dim)
        self.norm3 = nn.LayerNorm(channels)
        self.ff = FeedForward(channels)

    def forward(self, x: Tensor, bias: Tensor | None, back: LookBack | None) -> Tensor:
        """x [B, T, C]."""
        x = x + self.attn1(self.norm1(x), bias, back)
        return x + self.ff(self.norm3(x))


class UNetStage(nn.ModuleList):
    """A ResNet block and its transformer blocks; the outer stages end in a convolution."""

    def __init__(self, config: UNetConfig, inputs: int, time: int, conv: bool) -> None:
        blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.blocks))
        super().__init__([ResNet(inputs, config.channels, time), blocks])
        if conv:
            self.append(CausalConv(config.channels, config.channels))

    def transform(
        self, x: Tensor, time: Tensor, bias: Tensor | None, back: LookBack | None
    ) -> Tensor:
        """x [B, C, T] -> [B, C, T], without the last convolution."""
        blocks = self[1]
        assert isinstance(blocks, nn.ModuleList)
        x = self[0](x, time, back).transpose(1, 2)
        for block in blocks:
            x = block(x, bias, back)
        return x.transpose(1, 2)

    def convolve(self, x: Tensor, back: LookBack | None) -> Tensor:
        return self[2](x, back)


class UNet(nn.Module):
    def __init__(self, config: UNetConfig, mel: int) -> None:
        super().__init__()
        self.channels_in = 4 * mel  # x, mu, speaker, prompt
        time = 4 * config.channels
        self.time_mlp = nn.ModuleDict(
            {"linear_1": nn.Linear(self.channels_in, time), "linear_2": nn.Linear(time, time)}
        )
        self.down_blocks = nn.ModuleList([UNetStage(config, self.channels_in, time, conv=True)])
        self.mid_blocks = nn.ModuleList(
            UNetStage(config, config.channels, time, conv=False) for _ in range(config.mid)
        )
        self.up_blocks = nn.ModuleList([UNetStage(config, 2 * config.channels, time, conv=True)])
        self.final_block = ConvBlock(config.channels, config.channels)
        self.final_proj = nn.Conv1d(config.channels, mel, 1)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        bias: Tensor | None,
        back: LookBack | None = None,
    ) -> Tensor:
        """x, mu, prompt [B, mel, T], speaker [B, mel], t [B] -> [B, mel, T].

        bias: what `masks.attention_bias` gives; with what came before, `masks.chunk_bias`.
        """
        time = self.time_mlp["linear_1"](time_sinusoid(t, self.channels_in).to(x.dtype))
        time = self.time_mlp["linear_2"](F.silu(time))
        x = stack_inputs(x, mu, speaker, prompt)
        down, *middle, up = self._stages()
        skip = down.transform(x, time, bias, back)
        x = down.convolve(skip, back)
        for stage in middle:
            x = stage.transform(x, time, bias, back)
        x = up.transform(torch.cat((x, skip), dim=1), time, bias, back)
        x = self.final_block(up.convolve(x, back), back)
        return self.final_proj(x)

    def _stages(self) -> list[UNetStage]:
        stages = (*self.down_blocks, *self.mid_blocks, *self.up_blocks)
        return [stage for stage in stages if isinstance(stage, UNetStage)]


def stack_inputs(x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor) -> Tensor:
    """x, mu, prompt [B, mel, T], speaker [B, mel] -> [B, 4 mel, T]."""
    return torch.cat((x, mu, speaker[..., None].expand_as(x), prompt), dim=1)


def time_sinusoid(t: Tensor, size: int) -> Tensor:
    """[B] in 0..1 -> [B, size]: sines, then cosines, of 1000 t at falling frequencies."""
    half = size // 2
    frequency = torch.exp(torch.arange(half, device=t.device) * (-math.log(10000.0) / (half - 1)))
    angle = 1000.0 * t.float()[:, None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=-1)
