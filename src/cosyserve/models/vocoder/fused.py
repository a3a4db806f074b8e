"""The HiFT vocoder in few launches, for a GPU. `HiFT` is its reference.

Frames are rows of channels throughout, and a kernel writes what the next one reads:
sums in float32, and the activated rows that are multiplied in float16, whose products are as exact
as those of TF32. Residual blocks of a stage run side by side; their mean is one sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.kernels.convolution import Activation, Ends, Taps, convolve
from cosyserve.models.vocoder.kernels.excitation import excite
from cosyserve.models.vocoder.kernels.fourier import Fourier, analyze, synthesize
from cosyserve.models.vocoder.kernels.pitch import mel_rows, phases, pitch
from cosyserve.models.vocoder.layers import CausalConv1d, CausalUpsample, ResBlock, Snake

ALIGNED = 8  # channels that are read at once


class FusedHiFT:
    def __init__(self, vocoder: HiFT, dtype: torch.dtype = torch.float16) -> None:
        """`dtype` is that of the rows and weights that are multiplied."""
        config = vocoder.config
        self.vocoder = vocoder
        self.dtype = dtype
        self.ieee = dtype is torch.float32
        self._f0 = [_taps([conv], dtype) for conv in vocoder.f0_predictor.condnet.values()]
        self._fourier = Fourier.of(vocoder)
        self._elu = Activation("elu")
        self._pre = _taps([vocoder.conv_pre], dtype)
        self._post = _taps([vocoder.conv_post], dtype)
        # What each stage's input is activated by, and at last that of the last convolution.
        stages, kernels = len(vocoder.ups), len(config.kernels)
        self._leaky = [Activation("leaky", slope=config.slope) for _ in range(stages)]
        self._leaky.append(Activation("leaky", slope=0.01))
        self._ups = [_phases(up, dtype) for up in vocoder.ups]
        self._downs = [_strided(down, dtype) for down in vocoder.source_downs]
        self._strides = [_conv(down).stride[0] for down in vocoder.source_downs]
        # Frames of the spectrum that a down-sampling sees before its first.
        self._before = [s - 1 if config.causal else s // 2 for s in self._strides]
        self._sources = [_Blocks([block], dtype) for block in vocoder.source_resblocks]
        self._blocks = [
            _Blocks(vocoder.resblocks[kernels * i : kernels * (i + 1)], dtype)
            for i in range(stages)
        ]

    def f0(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `HiFT.f0`."""
        lengths = _full(mel, lengths)
        x = self._rows(mel, lengths)
        for taps in self._f0:
            last = taps is self._f0[-1]
            active = x.new_empty(
                *x.shape[:3], taps.bias.shape[1], dtype=torch.float32 if last else self.dtype
            )
            convolve(x, taps, Ends(lengths, 1), None, active, self._elu, ieee=self.ieee)
            x = active
        mix = self.vocoder.f0_predictor.classifier
        return pitch(x[0], (mix.weight, mix.bias), lengths)

    def source(self, f0: Tensor, seeds: Tensor, firsts: Tensor, before: Tensor) -> Tensor:
        """As `HiFT.source`, with the noise of the absolute samples from `firsts` [B] on."""
        mix = self.vocoder.m_source["l_linear"]
        assert isinstance(mix, nn.Linear)
        config, frame = self.vocoder.config, self.vocoder.frame
        linear = mix.weight, mix.bias
        return excite(phases(f0, before, config, frame), f0, seeds, firsts, linear, config, frame)

    def __call__(self, mel: Tensor, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `HiFT.forward`."""
        config, ieee = self.vocoder.config, self.ieee
        lengths = _full(mel, lengths)
        spectrum, batch, frames = self._spectrum(source, lengths), *mel[:, 0].shape
        x = mel.new_empty(1, batch, frames, config.base, dtype=self.dtype)
        ends = Ends(lengths, 1)
        convolve(self._rows(mel, lengths), self._pre, ends, None, x, self._leaky[0], ieee=ieee)
        for i, rate in enumerate(accumulate(config.upsample_rates, int.__mul__)):
            # The STFT has one frame more than the samples need.
            lead = 1 if i == len(self._ups) - 1 else 0
            ends = Ends(lengths, rate, lead)
            channels = config.base >> i + 1
            # The stage's input and what the source adds to it.
            both = mel.new_empty(2, batch, frames * rate + lead, channels)
            convolve(x, self._ups[i], ends, both[:1], ieee=ieee)
            if lead:
                both[0, :, 0] = both[0, :, 2]
            x, y = self._voiced(i, spectrum, both, ends)
            x, y = self._blocks[i](x, y, ends, ieee)
            mean = x.new_empty(x[:1].shape, dtype=self.dtype)
            convolve(
                y,
                self._blocks[i].last,
                ends,
                None,
                mean,
                self._leaky[i + 1],
                residual=x,
                scale=1 / len(x),
                ieee=ieee,
            )
            x = mean
        y = x.new_empty(*x.shape[:3], config.n_fft + 2, dtype=torch.float32)
        convolve(x, self._post, ends, y, ieee=ieee)
        return synthesize(y[0], lengths, rate, lead, self._fourier, config)

    def _voiced(self, i: int, spectrum: Tensor, both: Tensor, ends: Ends) -> tuple[Tensor, Tensor]:
        """Adds the source -> a stage's rows [1, B, T, C], and activated for each of its blocks."""
        down, source, first = self._downs[i], self._sources[i], self._blocks[i].first
        # Windows that overlap by half are two taps over rows of several frames.
        size = self._strides[i] * spectrum.shape[2]
        begin = (self._before[0] - self._before[i]) * spectrum.shape[2]
        windows = spectrum.as_strided(
            (1, len(spectrum), both.shape[2] + len(down.weight) - 1, size),
            (0, spectrum.stride(0), size, 1),
            begin,
        )
        added = both[1:]
        y = added.new_empty(added.shape, dtype=self.dtype)
        convolve(windows, down, ends, added, y, source.first, ieee=self.ieee)
        added, y = source(added, y, ends, self.ieee)
        assert first.alpha is not None
        x, z = both[:1], both.new_empty(len(first.alpha), *both.shape[1:], dtype=self.dtype)
        convolve(y, source.last, ends, x, z, first, residual=both, ieee=self.ieee)
        return x, z

    def _rows(self, mel: Tensor, lengths: Tensor) -> Tensor:
        return mel_rows(mel, lengths, self.dtype)[None]

    def _spectrum(self, source: Tensor, lengths: Tensor) -> Tensor:
        """[B, N] -> rows of frames, with those that a down-sampling sees around them."""
        config, before, around = self.vocoder.config, self._before[0], self._strides[0] - 1
        rows = around + source.shape[1] // config.hop + 1
        columns = triton.cdiv(config.n_fft + 2, ALIGNED) * ALIGNED
        out = source.new_empty(len(source), rows, columns, dtype=self.dtype)
        analyze(source, lengths, self._fourier, config, self.vocoder.frame, out, before)
        return out


class _Blocks:
    """Residual blocks side by side."""

    def __init__(self, blocks: Iterable[nn.Module], dtype: torch.dtype) -> None:
        resblocks = [block for block in blocks if isinstance(block, ResBlock)]
        first, *rest = (
            _snake(each) for each in zip(*(b.activations1 for b in resblocks), strict=True)
        )
        inner = [_taps(each, dtype) for each in zip(*(b.convs1 for b in resblocks), strict=True)]
        *outer, last = zip(*(b.convs2 for b in resblocks), strict=True)
        between = [_snake(each) for each in zip(*(b.activations2 for b in resblocks), strict=True)]
        self.first = first
        self._inner = list(zip(inner, between, strict=True))
        self._outer = list(zip((_taps(each, dtype) for each in outer), rest, strict=True))
        self.last = _taps(last, dtype, summed=True)

    def __call__(self, x: Tensor, y: Tensor, ends: Ends, ieee: bool) -> tuple[Tensor, Tensor]:
        """x [1, B, T, C], activated by `first` y [blocks, B, T, C] -> what the last convolution
        adds to, and what it reads."""
        for i, (taps, snake) in enumerate(self._inner):
            z = torch.empty_like(y)
            convolve(y, taps, ends, None, z, snake, ieee=ieee)
            y = z
            if i < len(self._outer):
                taps, snake = self._outer[i]
                z = torch.empty_like(y)
                out = x if len(x) == len(y) else x.new_empty(y.shape)
                convolve(y, taps, ends, out, z, snake, residual=x, ieee=ieee)
                x, y = out, z
        return x, y


def _taps(convs: Sequence[nn.Module], dtype: torch.dtype, *, summed: bool = False) -> Taps:
    """Taps of convolutions side by side; `summed`: their results are added up."""
    layers = [_conv(conv) for conv in convs]
    sizes = [conv.kernel_size[0] for conv in layers]
    starts = accumulate(sizes, initial=0)
    plan = [
        (start, size, conv.dilation[0], -_before(conv))
        for start, size, conv in zip(starts, sizes, layers, strict=False)
    ]
    bias = torch.stack([_bias(conv) for conv in layers])
    weight = torch.cat([conv.weight.permute(2, 0, 1) for conv in layers])
    return Taps(_held(weight, dtype), _plan(plan, bias), bias.sum(0, True) if summed else bias)


def _phases(up: nn.Module, dtype: torch.dtype) -> Taps:
    """Every rate-th row of a transposed convolution is an ordinary one with every rate-th tap."""
    if isinstance(up, CausalUpsample):
        return _repeated_phases(up, dtype)
    assert isinstance(up, nn.ConvTranspose1d)
    rate, padding, size = up.stride[0], int(up.padding[0]), up.kernel_size[0]
    weight, plan, start = [], [], 0
    for phase in range(rate):
        taps = [tap for tap in range(size - 1, -1, -1) if (phase + padding - tap) % rate == 0]
        weight += [up.weight[:, :, tap].T for tap in taps]
        plan.append((start, len(taps), 1, (phase + padding - taps[0]) // rate))
        start += len(taps)
    bias = _bias(up).expand(rate, -1).contiguous()
    return Taps(_held(torch.stack(weight), dtype), _plan(plan, bias), bias, phases=rate)


def _repeated_phases(up: CausalUpsample, dtype: torch.dtype) -> Taps:
    """Of rows that are repeated first, taps that see the same one are one tap."""
    weight: list[Tensor] = []
    plan, size = [], up.kernel_size[0]
    for phase in range(up.rate):
        seen = [(phase - size + 1 + tap) // up.rate for tap in range(size)]
        plan.append((len(weight), 1 - seen[0], 1, seen[0]))
        for row in range(seen[0], 1):
            taps = [tap for tap in range(size) if seen[tap] == row]
            weight.append(up.weight[:, :, taps].sum(2))
    bias = _bias(up).expand(up.rate, -1).contiguous()
    return Taps(_held(torch.stack(weight), dtype), _plan(plan, bias), bias, phases=up.rate)


def _strided(down: nn.Module, dtype: torch.dtype) -> Taps:
    """A convolution over rows of as many frames as it steps over."""
    conv = _conv(down)
    stride, size = conv.stride[0], conv.kernel_size[0]
    weight = F.pad(conv.weight.permute(2, 0, 1), (0, -conv.in_channels % ALIGNED))
    weight = weight.view(size // stride, stride, *weight.shape[1:]).transpose(1, 2).flatten(2)
    bias = _bias(conv)[None]
    return Taps(_held(weight, dtype), _plan([(0, size // stride, 1, 0)], bias), bias)


def _snake(snakes: Sequence[nn.Module]) -> Activation:
    return Activation("snake", torch.stack([s.alpha for s in snakes if isinstance(s, Snake)]))


def _held(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.detach().to(dtype).contiguous()


def _plan(lines: Sequence[tuple[int, ...]], like: Tensor) -> Tensor:
    return torch.tensor(lines, dtype=torch.int32, device=like.device)


def _conv(conv: nn.Module) -> nn.Conv1d:
    assert isinstance(conv, nn.Conv1d)
    return conv


def _before(conv: nn.Conv1d) -> int:
    """Rows that are seen before the first."""
    return conv.sides[0] if isinstance(conv, CausalConv1d) else int(conv.padding[0])


def _bias(layer: nn.Conv1d | nn.ConvTranspose1d) -> Tensor:
    assert layer.bias is not None
    return layer.bias.detach()


def _full(mel: Tensor, lengths: Tensor | None) -> Tensor:
    """The lengths; without any, all frames of each row."""
    if lengths is None:
        return torch.full_like(mel[:, 0, 0], mel.shape[2], dtype=torch.long)
    return lengths
