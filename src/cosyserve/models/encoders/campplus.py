"""CAM++ speaker encoder: 80-bin filterbank features of any length become one vector.

It takes features that are already computed, and freed of their mean.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyserve.models.config import CamPlusConfig

STEM_KERNEL = 5
HEAD_SHRINKING = 8  # three halvings of the frequency axis


def _valid(lengths: Tensor, like: Tensor) -> Tensor:
    """1 within each length, 0 past it, as many as `like` has frames: [B] -> [B, 1, T]."""
    frames = torch.arange(like.shape[-1], device=lengths.device)
    return (frames < lengths[:, None])[:, None, :].to(like.dtype)


def _normed(channels: int, affine: bool = True, relu: bool = True) -> nn.Sequential:
    """Batch normalization, then ReLU, under their published names."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        batchnorm=nn.BatchNorm1d(channels, affine=affine)
    )
    if relu:
        layers["relu"] = nn.ReLU()
    return nn.Sequential(layers)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; may halve the frequency axis."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, (stride, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, channels, 1, (stride, 1), bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, channels, F, T], valid [B, 1, 1, T] -> [B, channels, F / stride, T]"""
        y = F.relu(self.bn1(self.conv1(x * valid)))
        y = self.bn2(self.conv2(y * valid))
        return F.relu(y + self.shortcut(x))


class Head(nn.Module):
    """Two-dimensional convolutions that look at frequency and time together."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.layer1 = nn.ModuleList([ResidualBlock(channels, 2), ResidualBlock(channels, 1)])
        self.layer2 = nn.ModuleList([ResidualBlock(channels, 2), ResidualBlock(channels, 1)])
        self.conv2 = nn.Conv2d(channels, channels, 3, (2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, feat, T], valid [B, 1, T] -> [B, channels * feat / 8, T]"""
        valid = valid[:, None]
        x = F.relu(self.bn1(self.conv1(x[:, None] * valid)))
        for block in (*self.layer1, *self.layer2):
            x = block(x, valid)
        return F.relu(self.bn2(self.conv2(x * valid))).flatten(1, 2)


class Stem(nn.Module):
    """Halves the time axis."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(
            channels_in, channels_out, STEM_KERNEL, stride=2, padding=STEM_KERNEL // 2, bias=False
        )
        self.nonlinear = _normed(channels_out)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, channels_in, T], valid [B, 1, T] -> [B, channels_out, (T + 1) // 2]"""
        return self.nonlinear(self.linear(x * valid))


class ContextMask(nn.Module):
    """A dilated convolution whose channels are weighed by the utterance and the segment around."""

    def __init__(self, config: CamPlusConfig, dilation: int) -> None:
        super().__init__()
        channels = config.bottleneck
        self.segment = config.segment
        self.linear_local = nn.Conv1d(
            channels,
            config.growth,
            config.kernel,
            padding=(config.kernel - 1) // 2 * dilation,
            dilation=dilation,
            bias=False,
        )
        self.linear1 = nn.Conv1d(channels, channels // 2, 1)
        self.linear2 = nn.Conv1d(channels // 2, config.growth, 1)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, bottleneck, T], valid [B, 1, T] -> [B, growth, T]"""
        x = x * valid
        context = x.sum(dim=2, keepdim=True) / valid.sum(dim=2, keepdim=True)
        context = context + self._segment_means(x, valid)
        mask = self.linear2(F.relu(self.linear1(context))).sigmoid()
        return self.linear_local(x) * mask

    def _segment_means(self, x: Tensor, valid: Tensor) -> Tensor:
        """Each frame becomes the mean of the valid frames of its segment: [B, channels, T]."""
        sums, counts = (F.avg_pool1d(t, self.segment, ceil_mode=True) for t in (x, valid))
        means = (sums / counts.clamp(min=1 / self.segment)).unsqueeze(3)
        return means.expand(-1, -1, -1, self.segment).flatten(2)[:, :, : x.shape[2]]


class DenseLayer(nn.Module):
    """Adds `growth` channels to what all earlier layers of its block made."""

    def __init__(self, config: CamPlusConfig, channels: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _normed(channels)
        self.linear1 = nn.Conv1d(channels, config.bottleneck, 1, bias=False)
        self.nonlinear2 = _normed(config.bottleneck)
        self.cam_layer = ContextMask(config, dilation)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, channels, T], valid [B, 1, T] -> [B, channels + growth, T]"""
        narrow = self.nonlinear2(self.linear1(self.nonlinear1(x)))
        return torch.cat([x, self.cam_layer(narrow, valid)], dim=1)


class DenseBlock(nn.ModuleDict):
    """Dense layers in a row."""

    def __init__(self, config: CamPlusConfig, channels: int, layers: int, dilation: int) -> None:
        super().__init__(
            {
                f"tdnnd{i + 1}": DenseLayer(config, channels + i * config.growth, dilation)
                for i in range(layers)
            }
        )

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x [B, channels, T], valid [B, 1, T] -> [B, channels + layers * growth, T]"""
        for layer in self.values():
            x = layer(x, valid)
        return x


class Transit(nn.Module):
    """Halves the channels after a block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.nonlinear = _normed(channels)
        self.linear = nn.Conv1d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, T] -> [B, channels / 2, T]"""
        return self.linear(self.nonlinear(x))


class Embedding(nn.Module):
    """Projects the pooled statistics; a normalized, unscaled vector."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(channels, embedding, 1, bias=False)
        self.nonlinear = _normed(embedding, affine=False, relu=False)

    def forward(self, statistics: Tensor) -> Tensor:
        """[B, channels] -> [B, embedding]"""
        return self.nonlinear(self.linear(statistics[:, :, None])).squeeze(2)


def _statistics(x: Tensor, valid: Tensor) -> Tensor:
    """Mean and unbiased standard deviation over valid frames: [B, C, T] -> [B, 2 C]."""
    count = valid.sum(dim=2)
    mean = (x * valid).sum(dim=2) / count
    spread = (x - mean[:, :, None]) * valid
    variance = spread.square().sum(dim=2) / (count - 1).clamp(min=1)
    return torch.cat([mean, variance.sqrt()], dim=1)


class XVector(nn.Module):
    """Frames of the head in, one embedding out."""

    def __init__(self, config: CamPlusConfig, channels: int) -> None:
        super().__init__()
        self.tdnn = Stem(channels, config.init_channels)
        self.block_count = len(config.block_layers)
        channels = config.init_channels
        sizes = zip(config.block_layers, config.dilations, strict=True)
        for i, (layers, dilation) in enumerate(sizes, start=1):
            self.add_module(f"block{i}", DenseBlock(config, channels, layers, dilation))
            channels += layers * config.growth
            self.add_module(f"transit{i}", Transit(channels))
            channels //= 2
        self.out_nonlinear = _normed(channels)
        self.dense = Embedding(2 * channels, config.embedding)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x [B, channels, T], lengths [B] -> [B, embedding]"""
        x = self.tdnn(x, _valid(lengths, x))
        valid = _valid((lengths + 1) // 2, x)
        for i in range(1, self.block_count + 1):
            x = self.get_submodule(f"block{i}")(x, valid)
            x = self.get_submodule(f"transit{i}")(x)
        return self.dense(_statistics(self.out_nonlinear(x), valid))


class CamPlus(nn.Module):
    """Filterbank features in, speaker embeddings out; a row doesn't depend on its batch."""

    def __init__(self, config: CamPlusConfig) -> None:
        super().__init__()
        self.head = Head(config.head_channels)
        self.xvector = XVector(config, config.head_channels * config.feat // HEAD_SHRINKING)

    def forward(self, fbank: Tensor, lengths: Tensor | None = None) -> Tensor:
        """fbank [B, T, feat], lengths [B] (None: all frames of all rows) -> [B, embedding]"""
        x = fbank.transpose(1, 2)
        if lengths is None:
            lengths = torch.full((x.shape[0],), x.shape[2], device=x.device)
        return self.xvector(self.head(x, _valid(lengths, x)), lengths)
