"""The HiFT vocoder: mel frames in, samples out.

The phase before the first frame and the noise are given by the caller. Weight norm is folded into
plain weights when a checkpoint is read. Rows of a batch may have different lengths: what lies
behind a row's end is zeroed before every convolution that could see it. Module names are those of
the published checkpoint.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import VocoderConfig
from cosyserve.models.randomness import normal, uniform
from cosyserve.models.vocoder.layers import (
    F0_AHEAD,
    F0_LEFT,
    PRE_AHEAD,
    CausalConv1d,
    F0Predictor,
    ResBlock,
    convolution,
    cut,
    downsample,
    upsample,
)


class Margins(NamedTuple):
    """Frames around those of a stream that are vocoded for good."""

    left: int  # context in front of the first emitted sample
    held: int  # not emitted until more is known
    fade: int  # of the held ones: the first, from which the next chunk's are faded
    f0: int  # whose f0 is not final at the end of a chunk


MARGINS = Margins(left=20, held=8, fade=2, f0=5)


def _causal_margins(config: VocoderConfig) -> Margins:
    """What a causal vocoder sees, all of it: chunks then equal the whole, and nothing is faded."""
    total = math.prod(config.upsample_rates)
    overlap = config.n_fft // config.hop
    reach = overlap + 7  # positions of the STFT, from a sample back to the last stage
    furthest = reach
    scale = 1
    stages = list(
        zip(
            config.upsample_rates,
            config.upsample_kernels,
            config.source_kernels,
            config.source_dilations,
            strict=True,
        )
    )
    for rate, up, source, dilations in reversed(stages):
        blocks = zip(config.kernels, config.dilations, strict=True)
        reach += scale * max(_reach(kernel, steps) for kernel, steps in blocks)
        furthest = max(furthest, reach + scale * (_reach(source, dilations) + 2) + overlap)
        reach += scale * up
        scale *= rate
    left = max(F0_LEFT, -(-max(furthest, reach) // total) + 1)
    return Margins(left=left, held=max(PRE_AHEAD, F0_AHEAD) + 1, fade=0, f0=F0_AHEAD)


def _reach(kernel: int, dilations: tuple[int, ...]) -> int:
    """How far back a causal block sees."""
    return (kernel - 1) * (sum(dilations) + len(dilations))


class HiFT(nn.Module):
    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        base, bins = config.base, config.n_fft + 2
        rates = config.upsample_rates
        self.frame = math.prod(rates) * config.hop  # samples per frame
        self.margins = _causal_margins(config) if config.causal else MARGINS
        self.f0_predictor = F0Predictor(config)
        self.m_source = nn.ModuleDict({"l_linear": nn.Linear(config.harmonics + 1, 1)})
        self.conv_pre: nn.Conv1d = (
            CausalConv1d(config.mel, base, PRE_AHEAD + 1, ahead=PRE_AHEAD)
            if config.causal
            else nn.Conv1d(config.mel, base, 7, padding=3)
        )
        self.ups = nn.ModuleList(
            upsample(config, base >> i, base >> i + 1, k, r)
            for i, (r, k) in enumerate(zip(rates, config.upsample_kernels, strict=True))
        )
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for i in range(len(rates)):
            channels = base >> i + 1
            down = math.prod(rates[i + 1 :])  # from the STFT's rate to this stage's
            self.source_downs.append(downsample(config, bins, channels, down))
            self.source_resblocks.append(
                ResBlock(config, channels, config.source_kernels[i], config.source_dilations[i])
            )
            for kernel, dilations in zip(config.kernels, config.dilations, strict=True):
                self.resblocks.append(ResBlock(config, channels, kernel, dilations))
        self.conv_post = convolution(config, base >> len(rates), bins, 7)

    def f0(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, mel, T] -> f0 in Hz [B, T], zero behind a row's end."""
        return self.f0_predictor(mel, lengths)

    def cycles_per_frame(self, f0: Tensor) -> Tensor:
        """f0 [B, T] -> [B, T, harmonics + 1] float64: what each harmonic turns in one frame."""
        harmonic = torch.arange(1, self.config.harmonics + 2, device=f0.device)
        return (f0[..., None].double() * harmonic / self.config.sample_rate) % 1.0 * self.frame

    def phases(self, f0: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """f0 [B, T] -> where each harmonic starts and how far it turns, in cycles, from the middle
        of one frame to the middle of the next: [B, T + 1, harmonics + 1] each.

        `before` [B, harmonics + 1] (cycles) is the phase in the middle of the frame before the
        first; without it (NaN for single rows) speech begins here: half a frame stands still.
        """
        turns = self.cycles_per_frame(f0)
        first = turns[:, 0]
        if before is None:
            before = torch.full_like(first, math.nan)
        begins = before.isnan()
        middle = torch.where(begins, 0.0, before)[:, None] + turns.cumsum(1)  # [B, T, H]
        start = torch.where(begins, first, before)[:, None]
        slope = torch.cat((torch.where(begins, 0.0, first)[:, None], turns[:, 1:]), dim=1)
        start = torch.cat((start, middle), dim=1) % 1.0
        slope = torch.cat((slope, torch.zeros_like(slope[:, :1])), dim=1)
        return start.float(), slope.float()

    def noise(self, seed: Tensor, sample: Tensor) -> Tensor:
        """What is mixed into the excitation: seeds [B, 1], absolute samples [B, N] -> [B, N, H]."""
        if not self.config.causal:
            return normal(seed, sample, self.config.harmonics + 1)
        column = torch.arange(self.config.harmonics + 1, device=sample.device)
        return uniform(seed[..., None], sample[..., None], column).float()

    def source(self, f0: Tensor, noise: Tensor, before: Tensor | None = None) -> Tensor:
        """f0 [B, T], noise [B, N, harmonics + 1] -> excitation [B, N]; `before` as of `phases`."""
        config = self.config
        phase = self._steps(f0, before) if config.causal else self._slopes(f0, before)
        sines = torch.sin(2 * math.pi * phase) * config.sine_amplitude
        voiced = (f0 > config.voiced_above).float().repeat_interleave(self.frame, dim=1)[..., None]
        level = voiced * config.noise_sigma + (1 - voiced) * config.sine_amplitude / 3
        harmonics = sines * voiced + noise * level
        return torch.tanh(self.m_source["l_linear"](harmonics))[..., 0]

    def _slopes(self, f0: Tensor, before: Tensor | None) -> Tensor:
        """Phases of all samples [B, N, harmonics + 1] in cycles, straight from frame to frame."""
        start, slope = self.phases(f0, before)
        part = (torch.arange(self.frame, device=f0.device) + 0.5) / self.frame
        phase = start[:, :, None] + slope[:, :, None] * part[:, None]
        return phase.flatten(1, 2)[:, self.frame // 2 : -(self.frame // 2)]

    def ends(self, f0: Tensor, before: Tensor | None) -> Tensor:
        """Where each harmonic stands at the end of each frame [B, T, harmonics + 1], in cycles;
        `before` as of `phases`."""
        turns = self.cycles_per_frame(f0)
        if before is not None:
            turns[:, 0] += before.nan_to_num()
        return (turns.cumsum(1) % 1.0).float()

    def _steps(self, f0: Tensor, before: Tensor | None) -> Tensor:
        """As `_slopes`, but a frame holds the phase of its end."""
        return self.ends(f0, before).repeat_interleave(self.frame, dim=1)

    def forward(self, mel: Tensor, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel [B, mel, T], source [B, N], lengths [B] frames (None: all T) -> samples [B, N]."""
        config = self.config
        spectrum = self.spectrum(source, lengths)
        x = self.conv_pre(cut(mel, lengths, 1))
        rate, kernels = 1, len(config.kernels)
        for i, up in enumerate(self.ups):
            x = up(cut(F.leaky_relu(x, config.slope), lengths, rate))
            rate *= config.upsample_rates[i]
            ends = None if lengths is None else lengths * rate
            if i == len(self.ups) - 1:  # the STFT has one frame more than the samples need
                x = F.pad(x, (1, 0), mode="reflect")
                ends = None if ends is None else ends + 1
            x = x + self.source_resblocks[i](self.source_downs[i](spectrum), ends)
            blocks = self.resblocks[kernels * i : kernels * (i + 1)]
            x = torch.stack([block(x, ends) for block in blocks]).mean(0)
        return self.samples(self.conv_post(cut(F.leaky_relu(x), ends, 1)), ends)

    def samples(self, x: Tensor, ends: Tensor | None) -> Tensor:
        """Logarithmic magnitudes and angles [B, n_fft + 2, frames] -> [B, N]."""
        config = self.config
        bins = config.n_fft // 2 + 1
        magnitude = torch.exp(x[:, :bins]).clamp(max=100.0)
        angle = torch.sin(x[:, bins:])
        spectrum = torch.cat((magnitude * angle.cos(), magnitude * angle.sin()), dim=1)
        return self._istft(spectrum, ends).clamp(-config.limit, config.limit)

    def spectrum(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """[B, N] -> real and imaginary parts [B, n_fft + 2, N / hop + 1], ends reflected."""
        config = self.config
        half, size = config.n_fft // 2, x.shape[1]
        index = torch.arange(-half, size + half, device=x.device).abs().expand(len(x), -1)
        ends = x.new_full((1,), size, dtype=torch.long) if lengths is None else lengths * self.frame
        last = ends[:, None] - 1
        index = torch.where(index > last, 2 * last - index, index).clamp(min=0)
        forward, _, _ = fourier(config.n_fft, x.device, x.dtype)
        spectrum = F.conv1d(x.gather(1, index)[:, None], forward[:, None], stride=config.hop)
        return cut(spectrum, None if lengths is None else ends // config.hop + 1, 1)

    def _istft(self, spectrum: Tensor, ends: Tensor | None) -> Tensor:
        """[B, n_fft + 2, frames] -> [B, (frames - 1) * hop], overlapped and added."""
        config = self.config
        _, basis, window = fourier(config.n_fft, spectrum.device, spectrum.dtype)
        spectrum = cut(spectrum, ends, 1)
        present = cut(torch.ones_like(spectrum[:, :1]), ends, 1)
        x = _overlapped(basis.T @ spectrum, config.hop)
        energy = _overlapped(window.square()[:, None] * present, config.hop)
        half = config.n_fft // 2
        return (x[:, half:-half] / energy[:, half:-half].clamp(min=1e-8)).contiguous()


@cache
@torch.inference_mode(False)  # so that what is cached can also be trained with
def fourier(n_fft: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """From samples to real and imaginary parts and back [n_fft + 2, n_fft], both times the window;
    and the window, a periodic Hann window [n_fft]."""
    n = torch.arange(n_fft, dtype=torch.float64)
    bins = torch.arange(n_fft // 2 + 1)[:, None]
    angle = 2 * math.pi / n_fft * bins * n
    window = 0.5 - 0.5 * torch.cos(2 * math.pi / n_fft * n)
    forward = torch.cat((angle.cos(), -angle.sin())) * window
    weight = torch.where(bins % (n_fft // 2) == 0, 1.0, 2.0).double() / n_fft
    backward = forward * torch.cat((weight, weight))
    return forward.to(device, dtype), backward.to(device, dtype), window.to(device, dtype)


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """Frames [B, n, T], each `hop` behind the one before, added up -> [B, (T - 1) * hop + n].
    Always in the same order, which a transposed convolution on a GPU does not promise."""
    batch, size, count = frames.shape
    pieces = -(-size // hop)
    frames = F.pad(frames, (0, 0, 0, pieces * hop - size)).view(batch, pieces, hop, count)
    added = frames.new_zeros(batch, hop, count + pieces - 1)
    for piece in range(pieces):
        added[:, :, piece : piece + count] += frames[:, piece]
    return added.transpose(1, 2).flatten(1)[:, : (count - 1) * hop + size]
