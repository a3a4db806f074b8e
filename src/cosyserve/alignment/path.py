"""The likeliest path of speech through the sounds of a text, while both of them grow.

A semi-Markov model: every sound lasts as long as its kind does, more or less, and between words
there may be silence. A border is a place between two sounds; the first has the number 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosyserve.alignment.sounds import KINDS, SILENCE
from cosyserve.contracts import Floats

Doubles = npt.NDArray[np.float64]

LONGEST = 30  # frames of a sound
REACH = 100  # sounds behind the last settled one that are looked at
REMEMBERED = 2 * LONGEST  # frames before what is settled last
NEVER = -1e30
_SILENT = KINDS.index(SILENCE)


@dataclass(frozen=True)
class _Ways:
    """How the borders from `first` on were reached at the end of a frame: by a sound that lasted
    so many frames, or in a silence that began behind so many frames of the speech."""

    first: int
    lasted: npt.NDArray[np.uint8]
    silent: npt.NDArray[np.bool_]
    silent_from: npt.NDArray[np.int32]


class Path:
    def __init__(self, durations: Floats, pace: float = 1.0) -> None:
        """`durations`: mean and deviation of the logarithm of frames, by kind of sound [K, 2];
        `pace`: how much longer than these sounds last."""
        self._durations = durations.astype(np.float64)
        self._kinds: list[int] = []
        self._pauses = [0.0]  # what a silence at each border costs
        self._first = 0  # border; those before it are settled
        self._ways: list[_Ways] = []
        self._forgotten = 0  # of them
        # At the ends of the last frames:
        self._heard = np.zeros((LONGEST, len(KINDS)))
        self._scores = np.full((LONGEST, 1), NEVER)
        self._scores[-1, 0] = 0.0
        # At the end of the last one:
        self._sounding = np.array([0.0])  # scores of paths that have just left a sound
        self._silent = np.array([NEVER])
        self._silent_from = np.zeros(1, np.int32)
        self.set_pace(pace)

    @property
    def frames(self) -> int:
        return self._forgotten + len(self._ways)

    @property
    def last(self) -> int:
        """The border behind all sounds."""
        return len(self._kinds)

    def reaches_last(self) -> bool:
        """Whether the speech is long enough for all sounds."""
        return self._first + self._scores.shape[1] > self.last and self._scores[-1, -1] > NEVER / 2

    def best(self) -> int:
        """The border that the speech has likeliest come to."""
        return self._first + int(self._scores[-1].argmax())

    def extend(self, kinds: tuple[int, ...], pause: float) -> None:
        """Adds the sounds of a word, and what a silence behind it costs."""
        self._kinds += kinds
        self._pauses += [-NEVER] * (len(kinds) - 1) + [pause]

    def set_pace(self, pace: float) -> None:
        """Rows of the table: a sound that has lasted LONGEST, …, 2, 1 frames."""
        mean, deviation = self._durations.T
        lasted = np.log(np.arange(LONGEST, 0, -1))[:, None]
        off = (lasted - mean - np.log(pace)) / deviation
        self._lasting = -0.5 * off**2 - np.log(deviation)

    def push(self, heard: Doubles) -> None:
        """Log likelihoods of the kinds in the next frames: [n, K]"""
        kinds = self._kinds[self._first : self._first + REACH]
        pauses = np.array(self._pauses[self._first : self._first + len(kinds) + 1])
        self._fit(len(pauses))
        seen = np.concatenate([self._heard, heard])
        sums = np.cumsum(seen[:, kinds], axis=0)
        lasting = self._lasting[:, kinds]
        scores = np.concatenate([self._scores, np.full((len(heard), len(pauses)), NEVER)])
        columns = np.arange(len(kinds))
        for row in range(LONGEST, len(scores)):
            before = slice(row - LONGEST, row)
            ways = scores[before, :-1] - sums[before] + lasting
            chosen = ways.argmax(0)
            entered = self._sounding - pauses
            stays = self._silent >= entered
            self._silent = np.where(stays, self._silent, entered) + seen[row, _SILENT]
            self._silent_from = np.where(stays, self._silent_from, self.frames).astype(np.int32)
            self._sounding = np.full(len(pauses), NEVER)
            self._sounding[1:] = np.maximum(ways[chosen, columns] + sums[row], NEVER)
            scores[row] = np.maximum(self._sounding, self._silent)
            silent = self._silent > self._sounding
            lasted = (LONGEST - chosen).astype(np.uint8)
            self._ways.append(_Ways(self._first, lasted, silent, self._silent_from))
        self._scores, self._heard = scores[-LONGEST:], seen[-LONGEST:]

    def back_from(self, border: int) -> Iterator[tuple[int, int, int]]:
        """The sounds on the way to a border at the end of the speech, from the last to the first
        that is not settled: each with the frames behind which it begins and ends."""
        frame = self.frames
        while border > self._first and frame > self._forgotten:
            ways = self._ways[frame - 1 - self._forgotten]
            if ways.silent[border - ways.first]:
                frame = int(ways.silent_from[border - ways.first])
                ways = self._ways[max(0, frame - 1 - self._forgotten)]
            begin = frame - int(ways.lasted[border - 1 - ways.first])
            border -= 1
            yield border, begin, frame
            frame = begin

    def settle(self, border: int, frame: int) -> None:
        """What comes before the border, which was reached at the frame, changes no more."""
        shift, self._first = border - self._first, border
        self._scores = self._scores[:, shift:]
        self._sounding, self._silent = self._sounding[shift:], self._silent[shift:]
        self._silent_from = self._silent_from[shift:]
        old = frame - REMEMBERED - self._forgotten
        if old > 0:
            del self._ways[:old]
            self._forgotten += old

    def _fit(self, borders: int) -> None:
        """Makes room for sounds that have come into reach."""
        more = borders - len(self._sounding)
        if more > 0:
            self._scores = np.pad(self._scores, ((0, 0), (0, more)), constant_values=NEVER)
            self._sounding = np.pad(self._sounding, (0, more), constant_values=NEVER)
            self._silent = np.pad(self._silent, (0, more), constant_values=NEVER)
            self._silent_from = np.pad(self._silent_from, (0, more))
