"""Changes of sample rate: `resample` for reference audio, `StreamResampler` for speech going out.

Reference audio goes through the filter that the models were trained behind, tap for tap; speech
going out goes through soxr, which is steeper and works chunk by chunk. Both turn n samples into
ceil(n * to / from).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd

import numpy as np
import numpy.typing as npt

from cosyserve.contracts import Floats
from cosyserve.errors import AudioError

FILTER_ZERO_CROSSINGS = 6  # of the sinc, on each side
ROLLOFF = 0.99  # cut-off as a share of the lower Nyquist frequency
OUTPUTS_PER_BLOCK = 1 << 15  # bounds the memory of the gathered windows


def resampled_length(length: int, from_rate: int, to_rate: int) -> int:
    """The number of samples that `length` samples become."""
    return -(-length * to_rate // from_rate)


def resample(samples: Floats, from_rate: int, to_rate: int) -> Floats:
    """Hann-windowed sinc interpolation, samples [n] -> [ceil(n * to / from)]."""
    _check_rates(from_rate, to_rate)
    if from_rate == to_rate or not len(samples):
        return samples
    divisor = gcd(from_rate, to_rate)
    step, phases = from_rate // divisor, to_rate // divisor
    kernels = _kernels(step, phases)
    taps = kernels.shape[1]
    reach = taps // 2
    padded = np.pad(samples.astype(np.float64), (reach - 1, reach))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)

    out = np.empty(resampled_length(len(samples), from_rate, to_rate), np.float32)
    for start in range(0, len(out), OUTPUTS_PER_BLOCK):
        index = np.arange(start, min(start + OUTPUTS_PER_BLOCK, len(out)))
        out[index] = np.einsum("nt,nt->n", windows[index * step // phases], kernels[index % phases])
    return out


@lru_cache(maxsize=16)
def _kernels(step: int, phases: int) -> npt.NDArray[np.float64]:
    """One row of taps for each position of an output sample between two input samples.

    Row p belongs to outputs at p * step / phases input samples (mod step); its taps are the
    input samples around that position, so no row holds the zeros outside the sinc's window.
    """
    cutoff = min(step, phases) * ROLLOFF  # in half-cycles per `step` input samples
    reach = ceil(FILTER_ZERO_CROSSINGS * step / cutoff) + 1
    phase = np.arange(phases)
    nearest = phase * step // phases
    neighbour = nearest[:, None] + np.arange(1 - reach, reach + 1)
    # The phase is rounded to float32 because the training pipeline rounded it: with many phases
    # this is what its taps differ by from the ideal ones.
    offset = (-phase.astype(np.float32) / np.float32(phases)).astype(np.float64)
    crossings = np.clip(
        (offset[:, None] + neighbour / step) * cutoff,
        -FILTER_ZERO_CROSSINGS,
        FILTER_ZERO_CROSSINGS,
    )
    window = np.cos(crossings * np.pi / FILTER_ZERO_CROSSINGS / 2) ** 2
    kernels = np.sinc(crossings) * window * (cutoff / step)
    return np.asarray(kernels.astype(np.float32), np.float64)


class StreamResampler:
    """Resamples a signal that arrives in chunks; how it is cut doesn't change the result."""

    def __init__(self, from_rate: int, to_rate: int) -> None:
        import soxr

        _check_rates(from_rate, to_rate)
        self.from_rate, self.to_rate = from_rate, to_rate
        self._pushed = self._returned = 0  # samples
        self._stream = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")

    def push(self, samples: Floats, last: bool = False) -> Floats:
        """The next samples [n] in, those that became certain [m] out; `last` drains the rest."""
        self._pushed += len(samples)
        if last:  # soxr rounds the length to the nearest; silence behind the end lets it round up
            silence = np.zeros(ceil(self.from_rate / self.to_rate), np.float32)
            samples = np.concatenate([samples, silence])
        out: Floats = self._stream.resample_chunk(
            np.ascontiguousarray(samples, np.float32), last=last
        )
        due = resampled_length(self._pushed, self.from_rate, self.to_rate) - self._returned
        out = out[:due]
        self._returned += len(out)
        return out


def _check_rates(*rates: int) -> None:
    for rate in rates:
        if rate < 1:
            raise AudioError(f"a sample rate must be positive, got {rate} Hz")
