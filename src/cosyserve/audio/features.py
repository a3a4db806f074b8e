"""What the networks hear of a waveform: prompt mel, Whisper log-mel and Kaldi filter banks.

Waves are float32 [n] in -1..1 at the rate that each function names. Spectra are computed in
float64 and returned as float32.
"""

from __future__ import annotations

from functools import lru_cache
from math import log

import numpy as np
import numpy.typing as npt

from cosyserve.contracts import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_FRAME, Floats
from cosyserve.errors import AudioError

Doubles = npt.NDArray[np.float64]

PROMPT_WINDOW = 1920
PROMPT_TOP_HZ = 8000.0
PROMPT_MAGNITUDE_FLOOR = 1e-9  # added to the power before its root
PROMPT_MEL_FLOOR = 1e-5

SPEECH_RATE = 16_000  # of the speech tokenizer and of the speaker encoder

WHISPER_WINDOW = 400
WHISPER_HOP = 160
WHISPER_BINS = 128
WHISPER_POWER_FLOOR = 1e-10
WHISPER_RANGE = 8.0  # decades kept below the loudest value

KALDI_WINDOW = 400
KALDI_HOP = 160
KALDI_FFT = 512
KALDI_BINS = 80
KALDI_LOW_HZ = 20.0
KALDI_PREEMPHASIS = 0.97
KALDI_POVEY_EXPONENT = 0.85
KALDI_POWER_FLOOR = float(np.finfo(np.float32).eps)

SPEAKER_AUDIBLE = 10**-2.5  # of the power that the loudest half second reaches: -25 dB
SPEAKER_MARGIN = 10  # frames around an audible one that belong to it: 0.1 s
SPEAKER_FRAMES = 50  # fewer are not enough to tell a voice by: 0.5 s


def prompt_mel(wave: Floats, top_hz: float = PROMPT_TOP_HZ) -> Floats:
    """Natural-log mel magnitudes up to `top_hz` that prompt the flow: 24 kHz [n] -> [n // 480, 80].

    At least 721 samples: the ends are mirrored by 720.
    """
    mirrored = _mirror(wave, (PROMPT_WINDOW - SAMPLES_PER_FRAME) // 2, SAMPLE_RATE)
    frames = _frames(mirrored, PROMPT_WINDOW, SAMPLES_PER_FRAME)
    spectrum = np.fft.rfft(frames * _hann(PROMPT_WINDOW))
    magnitude = np.sqrt(_power(spectrum) + PROMPT_MAGNITUDE_FLOOR)
    mel = magnitude @ slaney_filters(SAMPLE_RATE, PROMPT_WINDOW, MEL_BINS, top_hz).T
    return np.asarray(np.log(np.maximum(mel, PROMPT_MEL_FLOOR)), np.float32)


def whisper_log_mel(wave: Floats) -> Floats:
    """Scaled log10 mel powers that the speech tokenizer reads: 16 kHz [n] -> [128, n // 160].

    At least 201 samples: the ends are mirrored by 200.
    """
    mirrored = _mirror(wave, WHISPER_WINDOW // 2, SPEECH_RATE)
    frames = _frames(mirrored, WHISPER_WINDOW, WHISPER_HOP)[:-1]
    power = _power(np.fft.rfft(frames * _hann(WHISPER_WINDOW)))
    mel = slaney_filters(SPEECH_RATE, WHISPER_WINDOW, WHISPER_BINS, SPEECH_RATE / 2) @ power.T
    decades = np.log10(np.maximum(mel, WHISPER_POWER_FLOOR))
    decades = np.maximum(decades, decades.max() - WHISPER_RANGE)
    return np.asarray((decades + 4.0) / 4.0, np.float32)


def kaldi_fbank(wave: Floats) -> Floats:
    """Natural-log filter-bank powers: 16 kHz [n] -> [1 + (n - 400) // 160, 80].

    At least 400 samples: only whole windows count.
    """
    _require(wave, KALDI_WINDOW, SPEECH_RATE)
    frames = _frames(wave.astype(np.float64), KALDI_WINDOW, KALDI_HOP)
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    window = _hann(KALDI_WINDOW, periodic=False) ** KALDI_POVEY_EXPONENT
    spectrum = np.fft.rfft((frames - KALDI_PREEMPHASIS * before) * window, KALDI_FFT)
    power = _power(spectrum) @ _kaldi_filters().T
    return np.asarray(np.log(np.maximum(power, KALDI_POWER_FLOOR)), np.float32)


def speaker_fbank(wave: Floats, *, silence: bool = True) -> Floats:
    """`kaldi_fbank` minus its mean over time, as the speaker encoder reads it: [n] -> [T, 80].

    Without `silence` it has only the frames near audible ones, if these are not too few.
    """
    fbank = kaldi_fbank(wave)
    if not silence and (near := _near_audible(wave)).sum() >= SPEAKER_FRAMES:
        fbank = fbank[near]
    return np.asarray(fbank - fbank.mean(axis=0), np.float32)


def _near_audible(wave: Floats) -> npt.NDArray[np.bool_]:
    """Which frames of `kaldi_fbank` are audible, or no further from one than the margin."""
    power = _frames(wave.astype(np.float64), KALDI_WINDOW, KALDI_HOP).var(axis=1)
    loud = np.sort(power)[-SPEAKER_FRAMES:][0]  # of more than a click
    audible = power >= SPEAKER_AUDIBLE * loud
    around = np.convolve(audible, np.ones(2 * SPEAKER_MARGIN + 1))
    return np.asarray(around[SPEAKER_MARGIN:-SPEAKER_MARGIN] > 0.5)


def _require(wave: Floats, samples: int, rate: int) -> None:
    if wave.ndim != 1:
        raise AudioError(f"a mono wave must be [n], got shape {list(wave.shape)}")
    if len(wave) < samples:
        raise AudioError(
            f"audio is too short: {len(wave)} samples at {rate} Hz, at least {samples} are needed"
        )


def _mirror(wave: Floats, margin: int, rate: int) -> Doubles:
    _require(wave, margin + 1, rate)
    return np.pad(wave.astype(np.float64), margin, mode="reflect")


def _frames(wave: Doubles, window: int, hop: int) -> Doubles:
    """[n] -> [1 + (n - window) // hop, window]"""
    return np.lib.stride_tricks.sliding_window_view(wave, window)[::hop]


def _power(spectrum: npt.NDArray[np.complex128]) -> Doubles:
    return spectrum.real**2 + spectrum.imag**2


def _hann(length: int, periodic: bool = True) -> Doubles:
    cycle = length if periodic else length - 1
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / cycle), np.float64)


@lru_cache(maxsize=4)
def slaney_filters(rate: int, fft: int, bins: int, top_hz: float) -> Doubles:
    """Triangles of equal area on Slaney's mel scale: [bins, fft // 2 + 1]."""
    edges = _slaney_to_hz(np.linspace(0.0, _slaney_from_hz(top_hz), bins + 2))
    hz = np.arange(fft // 2 + 1) * (rate / fft)
    area = 2.0 / (edges[2:] - edges[:-2])
    return _triangles(edges, hz) * area[:, None]


@lru_cache(maxsize=1)
def _kaldi_filters() -> Doubles:
    """Triangles of height 1 over the mel axis itself: [80, 257]. The Nyquist bin is left out."""
    hz = np.arange(KALDI_FFT // 2 + 1) * (SPEECH_RATE / KALDI_FFT)
    mel = 1127.0 * np.log1p(hz / 700.0)
    lowest = 1127.0 * np.log1p(KALDI_LOW_HZ / 700.0)
    filters = _triangles(np.linspace(lowest, mel[-1], KALDI_BINS + 2), mel)
    filters[:, -1] = 0.0
    return filters


def _triangles(edges: Doubles, axis: Doubles) -> Doubles:
    """Triangle i rises from edges[i] to 1 at edges[i + 1] and falls to edges[i + 2]."""
    low, peak, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (axis - low) / (peak - low), (high - axis) / (high - peak)
    return np.maximum(0.0, np.minimum(rising, falling))


# Slaney's scale: 3 mel per 200 Hz up to 1 kHz, then 27 mel for each factor of 6.4.
HZ_PER_MEL = 200.0 / 3.0
KNEE_HZ = 1000.0
KNEE_MEL = KNEE_HZ / HZ_PER_MEL
LOG_STEP = log(6.4) / 27.0


def _slaney_from_hz(hz: float) -> float:
    if hz < KNEE_HZ:
        return hz / HZ_PER_MEL
    return KNEE_MEL + log(hz / KNEE_HZ) / LOG_STEP


def _slaney_to_hz(mel: Doubles) -> Doubles:
    above = KNEE_HZ * np.exp(LOG_STEP * (mel - KNEE_MEL))
    return np.where(mel < KNEE_MEL, mel * HZ_PER_MEL, above)
