"""The silence that speech begins with: how long it is, and speech without most of it.

A window is audible if it is louder than a quiet room is next to speech. Windows are counted from
the first sample on, so that it makes no difference in which pieces a signal comes.
"""

from __future__ import annotations

import numpy as np

from cosyserve.contracts import SAMPLE_RATE, Floats

WINDOW = SAMPLE_RATE // 100  # samples: 10 ms
AUDIBLE = 10 ** (-45 / 20)  # root mean square, of full scale
KEPT = SAMPLE_RATE // 50  # samples before the first audible window that are left: 20 ms

NOTHING = np.zeros(0, np.float32)


class Onset:
    """Looks for the first audible window of a signal that comes in pieces."""

    def __init__(self) -> None:
        self._rest = NOTHING  # of less than a window
        self.seen = 0  # samples, in whole windows
        self.at: int | None = None  # the sample where speech can be heard; None: none yet

    def push(self, samples: Floats) -> None:
        if self.at is not None:
            return
        joined = np.concatenate([self._rest, samples])
        count = len(joined) // WINDOW
        windows = joined[: count * WINDOW].reshape(count, WINDOW)
        powers = np.einsum("ij,ij->i", windows, windows)  # a third of the time of mean and square
        loud = np.flatnonzero(powers >= WINDOW * AUDIBLE**2)
        if loud.size:
            self.at = self.seen + int(loud[0]) * WINDOW
        self.seen += count * WINDOW
        self._rest = joined[count * WINDOW :]


class SilenceTrim:
    """Leaves KEPT samples of the silence before a signal that comes in pieces.

    Of a signal that is silent to its end, its last samples are left.
    """

    def __init__(self) -> None:
        self._onset = Onset()
        self._held = NOTHING  # what may be left
        self._dropped = 0

    def push(self, samples: Floats, *, last: bool) -> Floats:
        """The samples that are certain to be left."""
        if self._onset.at is not None:
            return samples
        self._onset.push(samples)
        held: Floats = np.concatenate([self._held, samples])
        if self._onset.at is not None:
            self._held = NOTHING
            return held[max(0, self._onset.at - KEPT - self._dropped) :]
        if last:
            return held[-KEPT:]
        idle = max(0, self._onset.seen - KEPT - self._dropped)
        self._held, self._dropped = held[idle:], self._dropped + idle
        return NOTHING


def leading_silence(samples: Floats) -> int | None:
    """The samples before the first audible window; None: there is none."""
    onset = Onset()
    onset.push(samples)
    return onset.at
