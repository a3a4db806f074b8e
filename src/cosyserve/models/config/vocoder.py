"""The sizes of a vocoder."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.models.config.checks import require


@dataclass(frozen=True)
class VocoderConfig:
    """The HiFT vocoder: mel frames in, samples out."""

    mel: int = 80
    base: int = 512
    f0_channels: int = 512
    harmonics: int = 8
    sample_rate: int = 24_000
    sine_amplitude: float = 0.1
    noise_sigma: float = 0.003
    voiced_above: float = 10.0  # Hz
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    n_fft: int = 16
    hop: int = 4
    kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    slope: float = 0.1
    limit: float = 0.99
    causal: bool = False  # CosyVoice3: it sees only a few frames ahead, and nothing of a sample

    def __post_init__(self) -> None:
        stages = len(self.upsample_rates)
        require(
            stages
            == len(self.upsample_kernels)
            == len(self.source_kernels)
            == len(self.source_dilations),
            "the vocoder's lists of stages differ in length",
        )
        require(len(self.kernels) == len(self.dilations), "kernels and dilations differ in length")
        require(self.base >> stages > 0, "base can't be halved in every stage")
        require(
            all(k % 2 for k in self.kernels + self.source_kernels), "a block's kernel is not odd"
        )
        require(
            all(
                k >= r and (self.causal or (k - r) % 2 == 0)
                for k, r in zip(self.upsample_kernels, self.upsample_rates, strict=True)
            ),
            "an upsampling kernel does not stand evenly over its rate",
        )
        require(self.n_fft % 2 == 0 and self.hop <= self.n_fft, "n_fft and hop don't fit")
