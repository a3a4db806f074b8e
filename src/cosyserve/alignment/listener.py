"""Hears which sound is spoken, fifty times a second: a small convolutional net over a spectrum.

Frames are computed in blocks of one size, counted from the first sample on, so that it makes no
difference in which pieces a signal comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from cosyserve.alignment.sounds import SOUNDS
from cosyserve.audio.features import slaney_filters
from cosyserve.contracts import SAMPLE_RATE, Floats

FRAME = 480  # samples: 20 ms
BLOCK = 10  # frames that are computed together

# The spectrum: two rows a frame.
HOP, WINDOW, FFT, BINS, TOP_HZ = FRAME // 2, 600, 1024, 40, 7600.0
FLOOR = 1e-4  # of magnitudes
WIDTHS = (8, 5, 5, 1)  # of the layers' kernels
MARGIN = 11  # rows that the net sees before those of a frame, and as many behind
LEAD = MARGIN * HOP + (WINDOW - HOP) // 2  # samples of silence before the first
SEEN = (2 * BLOCK + 2 * MARGIN - 1) * HOP + WINDOW  # samples that a block is computed from
WEIGHTS = Path(__file__).parent / "listener.safetensors"


@dataclass(frozen=True)
class Net:
    """`layers`: kernels [width, in, out] with biases; the first steps over two rows at a time."""

    layers: list[tuple[Floats, Floats]]
    priors: Floats  # logarithms of how frequent the sounds are [S]
    durations: Floats  # mean and deviation of the logarithm of frames, of kinds of sounds [K, 2]

    def __call__(self, rows: Floats) -> Floats:
        """rows [2 * (frames + MARGIN), BINS] -> log likelihoods of the sounds [frames, S], each
        next to how frequent it is."""
        x = rows
        for number, (kernel, bias) in enumerate(self.layers):
            margin = len(kernel) // 2
            seen = np.lib.stride_tricks.sliding_window_view(x, len(kernel), axis=0)
            seen = np.swapaxes(seen[:: 1 if number else 2], 1, 2)
            y = seen.reshape(len(seen), -1) @ kernel.reshape(-1, kernel.shape[2]) + bias
            if number < len(self.layers) - 1:
                y = np.maximum(y, 0)
                y = y + x[margin : len(x) - margin] if number else y
            x = y
        best = x.max(-1, keepdims=True)
        scores: Floats = x - best - np.log(np.exp(x - best).sum(-1, keepdims=True)) - self.priors
        return scores


def spectrum(samples: Floats) -> Floats:
    """Log magnitudes of whole windows, a hop apart: [n] -> [1 + (n - WINDOW) // HOP, BINS]"""
    windows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(windows * _hann(), FFT))
    mel = magnitudes @ slaney_filters(SAMPLE_RATE, FFT, BINS, TOP_HZ).T
    return np.asarray(np.log(np.maximum(mel, FLOOR)), np.float32)


@lru_cache(maxsize=1)
def load_net() -> Net:
    tensors = {name: tensor.astype(np.float32) for name, tensor in load_file(WEIGHTS).items()}
    layers = [(tensors[f"{n}.kernel"], tensors[f"{n}.bias"]) for n in range(len(WIDTHS))]
    return Net(layers, tensors["priors"], tensors["durations"])


class Listener:
    """One signal: `push` its samples, then `finish`. Both give the frames that are known now."""

    def __init__(self) -> None:
        self._net = load_net()
        self._samples = np.zeros(LEAD, np.float32)  # that frames are still computed from
        self._taken = 0  # samples
        self._frames = 0  # that were given

    def push(self, samples: Floats) -> Floats:
        self._taken += len(samples)
        return self._listen(np.nan_to_num(samples, posinf=0.0, neginf=0.0))

    def finish(self) -> Floats:
        """The last frame may be of less than FRAME samples."""
        left = -(-self._taken // FRAME) - self._frames
        return self._listen(np.zeros(SEEN, np.float32))[:left]

    def _listen(self, samples: Floats) -> Floats:
        self._samples = np.concatenate([self._samples, samples])
        heard = [np.zeros((0, len(SOUNDS)), np.float32)]
        while len(self._samples) >= SEEN:
            heard.append(self._net(spectrum(self._samples[:SEEN])))
            self._samples = self._samples[BLOCK * FRAME :]
        frames = np.concatenate(heard)
        self._frames += len(frames)
        return frames


@lru_cache(maxsize=1)
def _hann() -> npt.NDArray[np.float64]:
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW), np.float64)
