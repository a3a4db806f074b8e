"""Streams of audio between two chunks, found by what they are made of.

Whoever asks for the next chunk says all that came before it, so two clients can never get each
other's state, whatever ids they use; and a state that is gone can be made again. Knows no model.
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


def content(voice: str, seed: int, speed: float, with_prompt: bool, tokens: Sequence[int]) -> str:
    """Identity of a stream that has spoken these tokens; `voice` is the hash of the voice."""
    digest = hashlib.sha256(f"{voice} {seed} {speed} {with_prompt}".encode())
    digest.update(np.asarray(tokens, np.int32).tobytes())
    return digest.hexdigest()


@dataclass
class _Kept(Generic[State]):
    state: State
    owner: str
    until: float


class Streams(Generic[State]):
    """At most so many, each for so many seconds."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self.seconds, self._clock = most, seconds, clock
        self._kept: OrderedDict[str, _Kept[State]] = OrderedDict()

    def __len__(self) -> int:
        self._drop_stale()
        return len(self._kept)

    def take(self, key: str) -> State | None:
        """The state, which is no longer kept; None: it is not here."""
        self._drop_stale()
        kept = self._kept.pop(key, None)
        return kept.state if kept else None

    def put(self, key: str, state: State, owner: str) -> None:
        self._kept.pop(key, None)
        self._kept[key] = _Kept(state, owner, self._clock() + self.seconds)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)

    def forget(self, owner: str) -> None:
        """Frees what an owner left."""
        for key in [key for key, kept in self._kept.items() if kept.owner == owner]:
            del self._kept[key]

    def _drop_stale(self) -> None:
        now = self._clock()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._kept.popitem(last=False)
