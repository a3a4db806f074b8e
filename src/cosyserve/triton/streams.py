"""The states of audio streams between two chunks, found by what the streams are made of.

A request for the next chunk carries all that came before it, so two clients can never get each
other's state, whatever ids they use; and a state that is gone can be computed again.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

State = TypeVar("State")


def stream_key(
    voice: str, seed: int, speed: float, with_prompt: bool, tokens: Sequence[int]
) -> str:
    """Identity of a stream whose audio covers these tokens; `voice` is the hash of the voice."""
    digest = hashlib.sha256(f"{voice} {seed} {speed} {with_prompt}".encode())
    digest.update(np.asarray(tokens, np.int32).tobytes())
    return digest.hexdigest()


@dataclass
class _Entry(Generic[State]):
    state: State
    owner: str
    until: float


class Streams(Generic[State]):
    """At most `max_streams` states, each for so many seconds."""

    def __init__(
        self, max_streams: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_streams = max_streams
        self.seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[str, _Entry[State]] = OrderedDict()

    def __len__(self) -> int:
        self._drop_stale()
        return len(self._entries)

    def take(self, key: str) -> State | None:
        """Removes and returns a state; None: it is not here."""
        self._drop_stale()
        entry = self._entries.pop(key, None)
        return entry.state if entry else None

    def put(self, key: str, state: State, owner: str) -> None:
        self._entries.pop(key, None)
        self._entries[key] = _Entry(state, owner, self._clock() + self.seconds)
        while len(self._entries) > self.max_streams:
            self._entries.popitem(last=False)

    def forget(self, owner: str) -> None:
        """Drops all states of an owner."""
        for key in [key for key, entry in self._entries.items() if entry.owner == owner]:
            del self._entries[key]

    def _drop_stale(self) -> None:
        now = self._clock()
        while self._entries and next(iter(self._entries.values())).until <= now:
            self._entries.popitem(last=False)
