"""A mark of who made a speech, which a key puts in and finds again, and nobody hears.

The mark is a faint echo: ECHOES copies of the speech, 2 to 23 ms behind it, whose signs and lags
come from the key. Together they are LEVEL below the speech, as the walls of a quiet room would be.
An echo needs no clock, so a recording may begin and end anywhere, and silence stays silent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosyserve.contracts import SAMPLE_RATE, Floats
from cosyserve.errors import InputError

LEVEL = -18.0  # dB, of all echoes together next to the speech
ECHOES = 256
SPACING = 2  # samples: each echo has a place of its own among so many
FIRST_LAG = SAMPLE_RATE // 500  # samples; what is nearer would sound like another voice
LAGS = ECHOES * SPACING  # different ones, from the first on
MIN_KEY_CHARACTERS = 16
PURPOSE = b"cosyserve watermark 1\0"


@dataclass(frozen=True, eq=False)
class Watermark:
    """The echoes of a key: signs [ECHOES] of 1 or -1, and lags [ECHOES] in samples."""

    signs: npt.NDArray[np.int64]
    lags: npt.NDArray[np.int64]

    @classmethod
    def of(cls, key: str) -> Watermark:
        if len(key) < MIN_KEY_CHARACTERS:
            raise InputError(
                "the watermark's key (COSYSERVE_WATERMARK_KEY) must have "
                f"{MIN_KEY_CHARACTERS} characters or more: `openssl rand -hex 16` makes one"
            )
        digest = hashlib.shake_256(PURPOSE + key.encode()).digest(2 * ECHOES)
        draws = np.frombuffer(digest, np.uint8).astype(np.int64).reshape(2, ECHOES)
        places = FIRST_LAG + SPACING * np.arange(ECHOES)
        return cls(signs=1 - 2 * (draws[0] % 2), lags=places + draws[1] % SPACING)


class WatermarkStream:
    """Marks a signal that comes in pieces; what they are makes no difference to any sample.

    A piece is answered at once, whole: echoes lie behind the speech.
    """

    def __init__(self, watermark: Watermark) -> None:
        self._echoes = list(zip(watermark.signs.tolist(), watermark.lags.tolist(), strict=True))
        self._gain = np.float32(10 ** (LEVEL / 20) / np.sqrt(ECHOES))
        self._past = np.zeros(FIRST_LAG + LAGS, np.float32)

    def push(self, samples: Floats) -> Floats:
        heard: Floats = np.concatenate([self._past, samples], dtype=np.float32)
        before, count = len(self._past), len(samples)
        echo = np.zeros(count, np.float32)
        for sign, lag in self._echoes:  # sample by sample: sums in another order are others
            behind = heard[before - lag : before - lag + count]
            if sign > 0:
                echo += behind
            else:
                echo -= behind
        self._past = heard[count:]
        return heard[before:] + self._gain * echo
