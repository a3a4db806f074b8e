"""The layers of the vocoder, as the config says: seeing both sides alike, or causal."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import VocoderConfig

F0_AHEAD, F0_LEFT = 3, 8  # frames that a causal pitch sees to its right and to its left
PRE_AHEAD = 4  # and the first convolution of a causal vocoder


class CausalConv1d(nn.Conv1d):
    """A convolution that sees only what came before, and `ahead` positions to its right."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, dilation: int = 1, *, ahead: int = 0
    ) -> None:
        super().__init__(inputs, outputs, kernel, dilation=dilation)
        self.sides = (kernel - 1) * dilation - ahead, ahead

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, self.sides))


class CausalUpsample(nn.Conv1d):
    """Each position `rate` times, then a causal convolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        x = x.repeat_interleave(self.rate, dim=2)
        return super().forward(F.pad(x, (self.kernel_size[0] - 1, 0)))


class CausalDownsample(nn.Conv1d):
    """Of every `rate` positions one, which sees what came before."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int) -> None:
        super().__init__(inputs, outputs, kernel, rate)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (self.stride[0] - 1, 0)))


def convolution(
    config: VocoderConfig, inputs: int, outputs: int, kernel: int, dilation: int = 1
) -> nn.Conv1d:
    if config.causal:
        return CausalConv1d(inputs, outputs, kernel, dilation)
    padding = (kernel - 1) * dilation // 2
    return nn.Conv1d(inputs, outputs, kernel, dilation=dilation, padding=padding)


def upsample(config: VocoderConfig, inputs: int, outputs: int, kernel: int, rate: int) -> nn.Module:
    if config.causal:
        return CausalUpsample(inputs, outputs, kernel, rate)
    return nn.ConvTranspose1d(inputs, outputs, kernel, rate, padding=(kernel - rate) // 2)


def downsample(config: VocoderConfig, inputs: int, outputs: int, rate: int) -> nn.Module:
    kernel = 1 if rate == 1 else 2 * rate
    if config.causal:
        return CausalDownsample(inputs, outputs, kernel, rate)
    return nn.Conv1d(inputs, outputs, kernel, rate, padding=0 if rate == 1 else rate // 2)


class F0Predictor(nn.Module):
    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.causal = config.causal
        sizes = [config.mel] + [config.f0_channels] * 5
        self.condnet = nn.ModuleDict(
            {str(2 * i): convolution(config, a, b, 3) for i, (a, b) in enumerate(pairwise(sizes))}
        )
        if config.causal:
            self.condnet["0"] = CausalConv1d(sizes[0], sizes[1], F0_AHEAD + 1, ahead=F0_AHEAD)
        self.classifier = nn.Linear(config.f0_channels, 1)

    def forward(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, mel, T] -> f0 in Hz [B, T], zero behind a row's end."""
        if self.causal and mel.dtype is not torch.float64:
            # Phases add up f0, so it must not depend on where a window begins.
            exact = {name: weight.double() for name, weight in self.named_parameters()}
            f0: Tensor = torch.func.functional_call(self, exact, (mel.double(), lengths))
            return f0.float()
        x = mel
        for conv in self.condnet.values():
            x = F.elu(conv(cut(x, lengths, 1)))
        f0 = self.classifier(x.transpose(1, 2)).abs().transpose(1, 2)
        return cut(f0, lengths, 1)[:, 0]


class Snake(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, ends: Tensor | None) -> Tensor:
        """x [B, C, T], zeroed behind its rows' ends."""
        x, alpha = cut(x, ends, 1), self.alpha[:, None]
        return x + torch.sin(alpha * x).square() / (alpha + 1e-9)


class ResBlock(nn.Module):
    def __init__(
        self, config: VocoderConfig, channels: int, kernel: int, dilations: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            convolution(config, channels, channels, kernel, d) for d in dilations
        )
        self.convs2 = nn.ModuleList(
            convolution(config, channels, channels, kernel) for _ in dilations
        )
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, ends: Tensor | None) -> Tensor:
        layers = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for snake1, conv1, snake2, conv2 in layers:
            y = conv1(snake1(x, ends))
            x = x + conv2(snake2(y, ends))
        return x


def cut(x: Tensor, lengths: Tensor | None, rate: int) -> Tensor:
    """Zeroes x [B, C, T] behind lengths * rate; None: nothing to cut."""
    if lengths is None:
        return x
    return x * (torch.arange(x.shape[2], device=x.device) < (lengths * rate)[:, None])[:, None]
