"""Finds the watermark of a key in any recording, and says how likely chance would have it there.

An echo with the lag t makes a ripple of the period 1/t in the logarithm of a spectrum, so the
average of the spectra's own spectra (their cepstra) has a little of the echo's sign at its lag.
The score is how well the signs found agree with those of the key:

    score = sum(sign * found) / sqrt(sum(found ** 2))    over all echoes

For any recording made without the key, the key's signs are tosses of a coin. By Hoeffding's
inequality the score then reaches z with a probability of at most exp(-z ** 2 / 2), whatever the
recording is: speech, music or another's watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

import numpy as np
import numpy.typing as npt

from cosyserve.audio.resample import StreamResampler
from cosyserve.audio.watermark import FIRST_LAG, LAGS, Watermark
from cosyserve.contracts import SAMPLE_RATE, Floats

FALSE_POSITIVES = 1e-6  # of recordings without the mark, those that may be called marked
FRAME, HOP = 4096, 1024  # samples: some times the longest lag, some times in a frame
BLOCK = 120 * HOP  # samples that are listened to at once: 5.12 s
QUIET = 1e-3  # next to the recording's power; a frame below it is none of the speech
FLOOR = 1e-5  # next to the recording's power; what a codec or a sample rate left out is below it
NEIGHBOURS = 12  # bins on each side, whose average says what a bin has without ripples
STRONGEST = 1.4  # that a bin may differ from them: the harmonics of a voice differ by more

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Detection:
    score: float
    false_positives: float  # at most this share of recordings without the mark score as much

    @property
    def marked(self) -> bool:
        return self.false_positives <= FALSE_POSITIVES


def detect(watermark: Watermark, samples: Floats, rate: int) -> Detection:
    return judge(watermark, listen(samples, rate))


def listen(samples: Floats, rate: int) -> Doubles:
    """What a recording has at each lag, of any key: a cepstrum for each five seconds [n, LAGS]."""
    if rate != SAMPLE_RATE:
        samples = StreamResampler(rate, SAMPLE_RATE).push(samples, last=True)
    power = float(np.mean(np.square(samples, dtype=np.float64))) if len(samples) else 0.0
    blocks = [_cepstrum(block, power) for block in _blocks(samples)]
    return np.array(blocks).reshape(-1, LAGS)


def judge(watermark: Watermark, cepstra: Doubles) -> Detection:
    """Looks for the mark in the whole of a recording, and in each ten seconds of a long one."""
    found = cepstra[:, watermark.lags - FIRST_LAG]
    parts = [found.sum(axis=0)]
    if len(found) > 2:
        parts += list(found[:-1] + found[1:])
    score = max(_score(watermark, part) for part in parts)
    return Detection(score, min(1.0, len(parts) * exp(-(max(score, 0.0) ** 2) / 2)))


def _score(watermark: Watermark, found: Doubles) -> float:
    size = float(np.linalg.norm(found))
    return float(watermark.signs @ found) / size if size else 0.0


def _blocks(samples: Floats) -> Iterator[Floats]:
    """Pieces whose frames, joined, are those of the recording."""
    for begin in range(0, len(samples) - FRAME + 1, BLOCK):
        yield samples[begin : begin + BLOCK + FRAME - HOP]


def _cepstrum(samples: Floats, power: float) -> Doubles:
    """The sum of its frames' cepstra [LAGS], those of quiet frames left out."""
    window = np.hanning(FRAME)
    frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP] * window
    whole = power * float(np.sum(window**2))  # the power of a bin, on average
    powers = np.abs(np.fft.rfft(frames)) ** 2
    powers = powers[powers.mean(axis=1) > QUIET * whole]
    if not len(powers):
        return np.zeros(LAGS)
    spectra = np.log(powers + FLOOR * whole)
    ripples = np.clip(spectra - _smooth(spectra), -STRONGEST, STRONGEST)
    cepstra = np.fft.irfft(ripples)[:, FIRST_LAG : FIRST_LAG + LAGS]
    usual = np.median(np.abs(cepstra))  # at the lags of its pitch, a voice has far more
    return np.asarray(np.clip(cepstra, -usual, usual).sum(axis=0), np.float64)


def _smooth(spectra: Doubles) -> Doubles:
    """Each bin's average with its neighbours."""
    width = 2 * NEIGHBOURS + 1
    padded = np.pad(spectra, ((0, 0), (NEIGHBOURS + 1, NEIGHBOURS)), mode="edge")
    sums = np.cumsum(padded, axis=1)
    return np.asarray((sums[:, width:] - sums[:, :-width]) / width, np.float64)
