"""The pitch of a voice, by autocorrelation and the cheapest path through its peaks.

Knows no corpus. After P. Boersma's description of the method (1993), on a fixed grid of pitches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

RATE, HOP, WINDOW, FFT = 16_000, 320, 960, 4096
LOWEST, HIGHEST, PITCHES = 60.0, 420.0, 112
GRID = np.geomspace(LOWEST, HIGHEST, PITCHES)
UNVOICED_SCORE = 0.45
PREFER_HIGH = 0.03  # per octave: among multiples of the period the shortest wins
JUMP = 0.5  # per octave from one frame to the next
ONSET = 0.2  # between voiced and unvoiced
BESIDE = 0.02  # of the period: how far from the grid's pitch the peak is looked for
QUIET = 0.02  # of the utterance's loudest frame: nothing to hear


def pitch(wave: Array, frames: int) -> Array:
    """16 kHz [n] -> Hz [frames], 50 per second, 0 where unvoiced."""
    padded = np.pad(wave.astype(np.float64), WINDOW)
    begin = WINDOW + HOP // 2 - WINDOW // 2
    windows = np.lib.stride_tricks.sliding_window_view(padded[begin:], WINDOW)[::HOP][:frames]
    hann = np.hanning(WINDOW)
    shape = np.fft.irfft(np.abs(np.fft.rfft(hann, FFT // 2)) ** 2, FFT)
    windows = windows - windows.mean(1, keepdims=True)
    power = np.abs(np.fft.rfft(windows * hann, FFT // 2)) ** 2
    correlation = np.fft.irfft(power, FFT)  # twice the resolution of the samples
    lag = 2 * RATE / GRID
    low = lag.astype(int)
    part = lag - low

    def at_lags(values: Array) -> Array:
        return values[..., low] * (1 - part) + values[..., low + 1] * part

    level = correlation[:, :1] + 1e-9
    strength = at_lags(correlation) / level / np.maximum(at_lags(shape) / shape[0], 0.05)
    score = strength + PREFER_HIGH * np.log2(GRID / LOWEST)
    loud = np.sqrt(level[:, 0])
    score[loud < QUIET * loud.max()] = -1.0
    path = _best_path(np.concatenate((score, np.full((len(score), 1), UNVOICED_SCORE)), axis=1))
    period = _peak(correlation / np.maximum(shape, 0.05 * shape[0]), lag[path % PITCHES])
    return np.where(path < PITCHES, 2 * RATE / period, 0.0)


def _peak(correlation: Array, lag: Array) -> Array:
    """Where each row is highest near its lag, between samples: a parabola through three of them."""
    reach = int(BESIDE * 2 * RATE / LOWEST) + 1
    offset = np.arange(-reach, reach + 1)
    at = np.rint(lag).astype(int)[:, None] + offset
    rows = np.arange(len(lag))
    near = np.where(abs(offset) <= BESIDE * lag[:, None] + 1, correlation[rows[:, None], at], -1e9)
    top = at[rows, near.argmax(1)]
    left, middle, right = (correlation[rows, top + k] for k in (-1, 0, 1))
    bend = np.minimum(left - 2 * middle + right, -1e-12)
    return top + np.clip(0.5 * (left - right) / bend, -0.5, 0.5)


def _best_path(score: Array) -> Array:
    states = score.shape[1]
    cost = np.full((states, states), ONSET)
    octave = np.log2(GRID)
    cost[:-1, :-1] = JUMP * np.abs(octave[:, None] - octave)
    cost[-1, -1] = 0.0
    total, back = score[0], []
    for row in score[1:]:
        options = total[:, None] - cost
        best = options.argmax(0)
        back.append(best)
        total = options[best, np.arange(states)] + row
    path = [int(total.argmax())]
    for best in reversed(back):
        path.append(int(best[path[-1]]))
    return np.array(path[::-1])
