"""What a listener hears of a stream whose pieces arrive over time.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# Sockets split a chunk into pieces that come at once; chunks are made one after another.
CHUNK_PAUSE = 0.010


class Arrival(NamedTuple):
    """A piece of audio that came."""

    at: float  # seconds after the request was sent
    seconds: float  # of audio


def chunk_times(arrivals: Sequence[Arrival]) -> list[float]:
    """When each chunk began to arrive: what comes without a pause is one chunk."""
    first = [arrival.at for arrival in arrivals[:1]]
    return first + [b.at for a, b in pairwise(arrivals) if b.at - a.at >= CHUNK_PAUSE]


def worst_underrun(arrivals: Sequence[Arrival]) -> float:
    """The longest silence of a player that starts with the first piece and waits when it has none.

    The silence before the first piece is not one.
    """
    worst, silent_from = 0.0, arrivals[0].at if arrivals else 0.0
    for at, seconds in arrivals:
        worst = max(worst, at - silent_from)
        silent_from = max(silent_from, at) + seconds
    return worst


def heard_by(arrivals: Sequence[Arrival], moment: float) -> float:
    """The seconds of audio that such a player has played at a moment."""
    heard, silent_from = 0.0, 0.0
    for at, seconds in arrivals:
        begins = max(silent_from, at)
        heard += min(max(0.0, moment - begins), seconds)
        silent_from = begins + seconds
    return heard


def heard_at(arrivals: Sequence[Arrival], seconds: float) -> float:
    """When such a player plays what comes after so many seconds of audio."""
    ahead, silent_from = seconds, 0.0
    for at, length in arrivals:
        begins = max(silent_from, at)
        if ahead < length:
            return begins + ahead
        ahead, silent_from = ahead - length, begins + length
    return silent_from
