"""The HiFT vocoder on a CPU: channels last, as its convolutions want them. `HiFT` is its reference.

Snake is x + sin(αx)² / α. Of rows that are scaled by α, which the weights before them can do, it is
z + sin(z)², divided by the weights behind: two passes over memory instead of five. So do weights
divide the sum of a stage's blocks, whose mean is wanted. The weights are copies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.layers import (
    CausalConv1d,
    CausalDownsample,
    CausalUpsample,
    ResBlock,
    Snake,
    cut,
)

LEAST_ALPHA = 1e-6  # smaller ones make no difference, but nothing could be divided by them

Convolution = Callable[[Tensor], Tensor]


def host_hift(vocoder: HiFT) -> HostHiFT | None:
    """The vocoder in channels last, where that is quick."""
    weight = vocoder.conv_pre.weight
    on_cpu = weight.device.type == "cpu" and weight.dtype is torch.float32
    return HostHiFT(vocoder) if on_cpu else None


class HostHiFT:
    def __init__(self, vocoder: HiFT) -> None:
        config = vocoder.config
        self.vocoder = vocoder
        kernels = len(config.kernels)
        self._pre = _convolution(vocoder.conv_pre)
        self._ups = [
            _convolution(up, inputs=kernels if i else 1.0) for i, up in enumerate(vocoder.ups)
        ]
        self._downs = [_convolution(down) for down in vocoder.source_downs]
        self._sources = [_Block(block) for block in vocoder.source_resblocks]
        blocks = [_Block(block) for block in vocoder.resblocks]
        self._stages = [blocks[i : i + kernels] for i in range(0, len(blocks), kernels)]
        self._post = _convolution(vocoder.conv_post, inputs=kernels)

    def f0(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `HiFT.f0`."""
        return self.vocoder.f0(mel, lengths)

    def source(self, f0: Tensor, seeds: Tensor, firsts: Tensor, before: Tensor) -> Tensor:
        """As `HiFT.source`, with the noise of the absolute samples from `firsts` [B] on."""
        sample = firsts[:, None] + torch.arange(f0.shape[1] * self.vocoder.frame)
        noise = self.vocoder.noise(seeds[:, None], sample)
        return self.vocoder.source(f0, noise, before)

    def __call__(self, mel: Tensor, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `HiFT.forward`."""
        config = self.vocoder.config
        spectrum = _channels_last(self.vocoder.spectrum(source, lengths))
        x = self._pre(_channels_last(cut(mel, lengths, 1)))
        slope, ends = config.slope, lengths
        for i, rate in enumerate(accumulate(config.upsample_rates, int.__mul__)):
            x = self._ups[i](_cut(F.leaky_relu_(x, slope), ends))
            ends = None if lengths is None else lengths * rate
            if i == len(self._ups) - 1:  # the STFT has one frame more than the samples need
                x = torch.cat((x[..., 1:2], x), dim=3)
                ends = None if ends is None else ends + 1
            x += self._sources[i](self._downs[i](spectrum), ends)
            first, *others = self._stages[i]
            total = first(x, ends)
            for block in others:
                total += block(x, ends)
            x = total
        x = self._post(_cut(F.leaky_relu_(x), ends))
        return self.vocoder.samples(x[:, :, 0], ends)


class _Block:
    """`ResBlock`, with α in its weights."""

    def __init__(self, block: nn.Module) -> None:
        assert isinstance(block, ResBlock)
        self.layers: list[tuple[Tensor, Convolution, Convolution]] = []
        parts = zip(block.activations1, block.convs1, block.activations2, block.convs2, strict=True)
        for snake1, conv1, snake2, conv2 in parts:
            before, between = _alpha(snake1), _alpha(snake2)
            self.layers.append(
                (
                    before[:, None, None],
                    _convolution(conv1, inputs=before, outputs=between),
                    _convolution(conv2, inputs=between),
                )
            )

    def __call__(self, x: Tensor, ends: Tensor | None) -> Tensor:
        for alpha, conv1, conv2 in self.layers:
            y = conv1(_snake(_cut(x * alpha, ends)))
            y = conv2(_snake(_cut(y, ends)))
            x = y.add_(x)
        return x


def _snake(z: Tensor) -> Tensor:
    """In place."""
    sine = z.sin()
    return z.addcmul_(sine, sine)


def _alpha(snake: nn.Module) -> Tensor:
    assert isinstance(snake, Snake)
    alpha = snake.alpha.detach()
    least = torch.where(alpha < 0, -LEAST_ALPHA, LEAST_ALPHA)
    return torch.where(alpha.abs() < LEAST_ALPHA, least, alpha)


def _convolution(
    conv: nn.Module, *, inputs: Tensor | float = 1.0, outputs: Tensor | None = None
) -> Convolution:
    """A convolution over the last of [B, C, 1, T], whose inputs are so many times [C] what they
    should be, and whose outputs shall be so many times [C] what they would be."""
    if isinstance(conv, nn.ConvTranspose1d):
        return partial(
            F.conv_transpose2d,
            weight=_channels_last(conv.weight.detach() / inputs),
            bias=conv.bias,
            stride=(1, conv.stride[0]),
            padding=(0, int(conv.padding[0])),
        )
    assert isinstance(conv, nn.Conv1d)
    assert conv.bias is not None
    weight, bias = conv.weight.detach(), conv.bias.detach()
    weight = weight / (inputs[:, None] if isinstance(inputs, Tensor) else inputs)
    if outputs is not None:
        weight, bias = weight * outputs[:, None, None], bias * outputs
    convolve = partial(
        F.conv2d,
        weight=_channels_last(weight),
        bias=bias,
        stride=(1, conv.stride[0]),
        padding=(0, int(conv.padding[0])),
        dilation=(1, conv.dilation[0]),
    )
    rate = conv.rate if isinstance(conv, CausalUpsample) else 1
    sides = _sides(conv)
    if rate == 1 and sides == (0, 0):
        return convolve
    return lambda x: convolve(F.pad(x.repeat_interleave(rate, dim=3), sides))


def _sides(conv: nn.Conv1d) -> tuple[int, int]:
    """What is put around the inputs of a causal one."""
    if isinstance(conv, CausalConv1d):
        return conv.sides
    if isinstance(conv, CausalUpsample):
        return conv.kernel_size[0] - 1, 0
    return (conv.stride[0] - 1, 0) if isinstance(conv, CausalDownsample) else (0, 0)


def _channels_last(x: Tensor) -> Tensor:
    """[B, C, T] -> [B, C, 1, T]."""
    return x[:, :, None].contiguous(memory_format=torch.channels_last)


def _cut(x: Tensor, ends: Tensor | None) -> Tensor:
    """Zeroes x [B, C, 1, T] behind its rows' ends, in place."""
    if ends is None:
        return x
    return x.mul_((torch.arange(x.shape[3]) < ends[:, None])[:, None, None])
