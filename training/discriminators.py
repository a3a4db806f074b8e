"""What the vocoder is judged by: spectra at several resolutions, and networks that learn to tell.

Window and filters of the mel are those of `audio.features`. Knows no vocoder.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from cosyserve.audio.features import slaney_filters

PERIODS = (2, 3, 5, 7, 11)
RESOLUTIONS = ((512, 128), (1024, 256), (2048, 512), (240, 60))  # window, hop


class PeriodDiscriminator(nn.Module):
    """Sees every n-th sample in one column."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        sizes = (1, 32, 128, 256, 512)
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in pairwise(sizes)
        )
        self.last = weight_norm(nn.Conv2d(sizes[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, wave: Tensor) -> list[Tensor]:
        """[B, n] -> feature maps, the last is the verdict."""
        x = F.pad(wave[:, None], (0, -wave.shape[1] % self.period), "reflect")
        x = x.unflatten(2, (-1, self.period))
        maps = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return [*maps, self.last(x)]


class SpectrumDiscriminator(nn.Module):
    """Sees real and imaginary parts of a spectrogram."""

    def __init__(self, size: int, hop: int, width: int = 48) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        strides = (2, 2, 2, 2)  # of frequencies
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(2 if i == 0 else width, width, (9, 3), (s, 1), (4, 1)))
            for i, s in enumerate(strides)
        )
        self.last = weight_norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, wave: Tensor) -> list[Tensor]:
        """[B, n] -> feature maps, the last is the verdict."""
        spectrum = stft(wave, self.size, self.hop, self.window)
        x = torch.stack((spectrum.real, spectrum.imag), dim=1)
        maps = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return [*maps, self.last(x)]


class Discriminators(nn.ModuleList):
    def __init__(self) -> None:
        super().__init__(PeriodDiscriminator(p) for p in PERIODS)
        self.extend(SpectrumDiscriminator(*r) for r in RESOLUTIONS[:3])

    def forward(self, wave: Tensor) -> list[list[Tensor]]:
        return [judge(wave) for judge in self]


def stft(wave: Tensor, size: int, hop: int, window: Tensor) -> Tensor:
    return torch.stft(wave, size, hop, window=window, return_complex=True)


class SpectralLoss(nn.Module):
    """Distances of magnitudes at several resolutions, and of mel spectra at two."""

    def __init__(self) -> None:
        super().__init__()
        for size, _ in RESOLUTIONS:
            self.register_buffer(f"window{size}", torch.hann_window(size))
        for size, bins in ((1920, 80), (480, 32)):
            self.register_buffer(f"mel_window{size}", torch.hann_window(size))
            filters = torch.from_numpy(slaney_filters(24_000, size, bins, 12_000.0)).float()
            self.register_buffer(f"filters{size}", filters)

    def forward(self, made: Tensor, real: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """[B, n] each, of rows that weigh [B] -> spectra, mel"""
        spectra, weight = made.new_zeros(()), weight[:, None, None]
        for size, hop in RESOLUTIONS:
            window = self.get_buffer(f"window{size}")
            a, b = (stft(w, size, hop, window).abs().clamp(min=1e-4) for w in (made, real))
            spectra = spectra + (weight * (a.log() - b.log()).abs()).mean()
            far = (weight * (a - b)).square().sum().sqrt()
            spectra = spectra + far / b.square().sum().sqrt()
        mel = made.new_zeros(())
        for size in (1920, 480):
            window, filters = (
                self.get_buffer(f"mel_window{size}"),
                self.get_buffer(f"filters{size}"),
            )
            a, b = (filters @ stft(w, size, size // 4, window).abs() for w in (made, real))
            far = (a.clamp(min=1e-4).log() - b.clamp(min=1e-4).log()).abs()
            mel = mel + (weight * far).mean()
        return spectra / len(RESOLUTIONS), mel
