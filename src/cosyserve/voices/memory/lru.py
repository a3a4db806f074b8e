"""Values by key within a number of bytes: the least recently used go first.

Two of the same limit that see the same calls hold the same keys.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")

# How long voices that nobody uses stay in memory. One that is removed can't be named any more: so
# this is also when the last process has forgotten it.
IDLE_SECONDS = 600.0


class Kept(NamedTuple, Generic[Value]):
    value: Value
    size: int
    used: float


class ByteLRU(Generic[Value]):
    """May be used from several threads."""

    def __init__(self, limit: int, idle_seconds: float | None = None) -> None:
        """`idle_seconds`: what was not used for so long goes, too."""
        self.limit = limit
        self.bytes = 0
        self._idle_seconds = idle_seconds
        self._kept: OrderedDict[str, Kept[Value]] = OrderedDict()  # the next to go is the first
        self._timer: threading.Timer | None = None  # while something may become idle
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Without counting as a use."""
        return key in self._kept

    def get(self, key: str) -> Value | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept[key] = kept = self._kept[key]._replace(used=time.monotonic())
            self._kept.move_to_end(key)
            return kept.value

    def put(self, key: str, value: Value, size: int) -> None:
        """Keeps the value, unless it alone is larger than the limit."""
        with self._lock:
            self.remove(key)
            if size > self.limit:
                return
            self._kept[key] = Kept(value, size, time.monotonic())
            self.bytes += size
            while self.bytes > self.limit:
                self.remove(next(iter(self._kept)))
            self._watch()

    def remove(self, key: str) -> None:
        with self._lock:
            if key in self._kept:
                self.bytes -= self._kept.pop(key).size

    def remove_idle(self, seconds: float) -> list[str]:
        """Removes what was not used for so long -> its keys."""
        with self._lock:
            until = time.monotonic() - seconds
            idle = [key for key, kept in self._kept.items() if kept.used <= until]
            for key in idle:
                self.remove(key)
            return idle

    def _watch(self) -> None:
        if self._idle_seconds is None or self._timer or not self._kept:
            return
        oldest = next(iter(self._kept.values()))
        wait = max(0.0, oldest.used + self._idle_seconds - time.monotonic())
        self._timer = threading.Timer(wait, _look_again, [weakref.ref(self)])
        self._timer.daemon = True
        self._timer.start()

    def look_again(self) -> None:
        assert self._idle_seconds is not None
        with self._lock:
            self.remove_idle(self._idle_seconds)
            self._timer = None
            self._watch()


def _look_again(reference: weakref.ref[ByteLRU[Value]]) -> None:
    """A timer must not keep a cache that nobody else has."""
    if cache := reference():
        cache.look_again()
