"""How many threads torch has on a CPU: all of them while they find their cores free, else one.

Threads meet at the end of every operation, hundreds of times in a chunk. One that has lost its core
to another program lets all others wait for a slice of time: together they are ten times as slow as
one alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

# Seconds from one look to the next while there is work: with all threads, and with one, when a look
# may take milliseconds.
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 0.02, 0.25
GRAIN = 1 << 15  # numbers that torch gives a thread at least
ROUNDS, TRIES = 2, 20  # of what is measured; how often it is, when nobody waits
# Times what a thread needs for its share: somebody was waited for. Two threads that had their cores
# took up to 16 times as long, being woken first; beside a busy program mostly 40 to 120 times.
LATE = 24.0
TRUSTED = 8  # looks in a row at which nobody was, before one thread becomes all of them again


class Threads:
    def __init__(self, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """`most`: as many as torch has where nothing else runs."""
        self.most = self.count = most
        self._clock = clock
        self._numbers = torch.linspace(0, 1, 2 * most * GRAIN)
        self._results = torch.empty_like(self._numbers)
        self._looked_at, self._good = 0.0, TRUSTED
        if most > 1:
            self._set(1)
            self._share = min(self._took(time.thread_time) for _ in range(TRIES)) / most
            self._set(most)

    def adjust(self) -> None:
        """Between two steps, in the thread that computes."""
        now, pause = self._clock(), LOOK_SECONDS if self.count > 1 else LOOK_AGAIN_SECONDS
        if self.most == 1 or now - self._looked_at < pause:
            return
        self._looked_at = now
        self._set(self.most)
        self._good = 0 if self._is_late() and self._is_late() else self._good + 1  # once is chance
        self._set(self.most if self._good >= TRUSTED else 1)

    def adopt(self) -> None:
        """In another thread before it computes: it has as many."""
        if self.most > 1:
            torch.set_num_threads(self.count)

    def _is_late(self) -> bool:
        return self._took(self._clock) > LATE * self._share

    def _set(self, count: int) -> None:
        self.count = count
        torch.set_num_threads(count)

    def _took(self, clock: Callable[[], float]) -> float:
        began = clock()
        for _ in range(ROUNDS):
            torch.sin(self._numbers, out=self._results)
        return clock() - began
