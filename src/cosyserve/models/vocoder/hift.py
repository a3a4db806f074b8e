"""The HiFT vocoder: mel frames in, samples out.

The phase before the first frame and the noise are given by the caller. Weight norm is folded into
plain weights when a checkpoint is read. Rows of a batch may have different lengths: what lies
behind a row's end is zeroed before every convolution that could see it. Module names are those of
the published checkpoint.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import VocoderConfig


class F0Predictor(nn.Module):
    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        sizes = [config.mel] + [config.f0_channels] * 5
        self.condnet = nn.ModuleDict(
            {str(2 * i): nn.Conv1d(a, b, 3, padding=1) for i, (a, b) in enumerate(pairwise(sizes))}
        )
        self.classifier = nn.Linear(config.f0_channels, 1)

    def forward(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, mel, T] -> f0 in Hz [B, T], zero behind a row's end."""
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
    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=(kernel * d - d) // 2)
            for d in dilations
        )
        self.convs2 = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2) for _ in dilations
        )
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, ends: Tensor | None) -> Tensor:
        layers = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for snake1, conv1, snake2, conv2 in layers:
            y = conv1(snake1(x, ends))
            x = x + conv2(snake2(y, ends))
        return x


class HiFT(nn.Module):
    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        base, bins = config.base, config.n_fft + 2
        rates = config.upsample_rates
        self.frame = math.prod(rates) * config.hop  # samples per frame
        self.f0_predictor = F0Predictor(config)
        self.m_source = nn.ModuleDict({"l_linear": nn.Linear(config.harmonics + 1, 1)})
        self.conv_pre = nn.Conv1d(config.mel, base, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(base >> i, base >> i + 1, k, r, padding=(k - r) // 2)
            for i, (r, k) in enumerate(zip(rates, config.upsample_kernels, strict=True))
        )
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for i in range(len(rates)):
            channels = base >> i + 1
            down = math.prod(rates[i + 1 :])  # from the STFT's rate to this stage's
            kernel = 1 if down == 1 else 2 * down
            self.source_downs.append(
                nn.Conv1d(bins, channels, kernel, down, padding=0 if down == 1 else down // 2)
            )
            self.source_resblocks.append(
                ResBlock(channels, config.source_kernels[i], config.source_dilations[i])
            )
            for kernel, dilations in zip(config.kernels, config.dilations, strict=True):
                self.resblocks.append(ResBlock(channels, kernel, dilations))
        self.conv_post = nn.Conv1d(base >> len(rates), bins, 7, padding=3)

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

    def source(self, f0: Tensor, noise: Tensor, before: Tensor | None = None) -> Tensor:
        """f0 [B, T], noise [B, N, harmonics + 1] -> excitation [B, N]; `before` as of `phases`."""
        config = self.config
        start, slope = self.phases(f0, before)
        part = (torch.arange(self.frame, device=f0.device) + 0.5) / self.frame
        phase = start[:, :, None] + slope[:, :, None] * part[:, None]
        phase = phase.flatten(1, 2)[:, self.frame // 2 : -(self.frame // 2)]  # [B, N, H]
        sines = torch.sin(2 * math.pi * phase) * config.sine_amplitude
        voiced = (f0 > config.voiced_above).float().repeat_interleave(self.frame, dim=1)[..., None]
        level = voiced * config.noise_sigma + (1 - voiced) * config.sine_amplitude / 3
        harmonics = sines * voiced + noise * level
        return torch.tanh(self.m_source["l_linear"](harmonics))[..., 0]

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
        window, cos, sin = _fourier(config.n_fft, x.device, x.dtype)
        basis = torch.cat((cos, -sin))[:, None] * window
        spectrum = F.conv1d(x.gather(1, index)[:, None], basis, stride=config.hop)
        return cut(spectrum, None if lengths is None else ends // config.hop + 1, 1)

    def _istft(self, spectrum: Tensor, ends: Tensor | None) -> Tensor:
        """[B, n_fft + 2, frames] -> [B, (frames - 1) * hop], overlapped and added."""
        config = self.config
        window, cos, sin = _fourier(config.n_fft, spectrum.device, spectrum.dtype)
        weight = torch.full_like(cos[:, :1], 2.0 / config.n_fft)
        weight[0] = weight[-1] = 1.0 / config.n_fft
        basis = torch.cat((weight * cos, -weight * sin)) * window
        spectrum = cut(spectrum, ends, 1)
        present = cut(torch.ones_like(spectrum[:, :1]), ends, 1)
        x = _overlapped(basis.T @ spectrum, config.hop)
        energy = _overlapped(window.square()[:, None] * present, config.hop)
        half = config.n_fft // 2
        return (x[:, half:-half] / energy[:, half:-half].clamp(min=1e-8)).contiguous()


@cache
@torch.inference_mode(False)  # so that what is cached can also be trained with
def _fourier(n_fft: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Periodic Hann window [n_fft], cosines and sines [n_fft / 2 + 1, n_fft]."""
    n = torch.arange(n_fft, dtype=torch.float64)
    angle = 2 * math.pi / n_fft * torch.arange(n_fft // 2 + 1)[:, None] * n
    window = 0.5 - 0.5 * torch.cos(2 * math.pi / n_fft * n)
    return (
        window.to(device, dtype),
        angle.cos().to(device, dtype),
        angle.sin().to(device, dtype),
    )


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


def cut(x: Tensor, lengths: Tensor | None, rate: int) -> Tensor:
    """Zeroes x [B, C, T] behind lengths * rate; None: nothing to cut."""
    if lengths is None:
        return x
    return x * (torch.arange(x.shape[2], device=x.device) < (lengths * rate)[:, None])[:, None]
