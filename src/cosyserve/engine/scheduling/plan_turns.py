"""Who goes on with a plan, as plans share one Python."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

Rank = tuple[bool, int]  # whether speech was planned already, and the characters of the text


class PlanTurns:
    """One plan goes on at a time: first those that somebody waits for in silence, and of these the
    shortest text."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[tuple[Rank, int, threading.Event]] = []  # a heap
        self._arrivals = itertools.count()
        self._taken = False

    def take(self, rank: Rank) -> None:
        turn = threading.Event()
        with self._mutex:
            if self._taken:
                heapq.heappush(self._waiting, (rank, next(self._arrivals), turn))
            else:
                turn.set()
            self._taken = True
        turn.wait()

    def give(self) -> None:
        with self._mutex:
            if self._waiting:
                heapq.heappop(self._waiting)[2].set()
            else:
                self._taken = False

    @contextmanager
    def turn(self, rank: Rank) -> Iterator[None]:
        self.take(rank)
        try:
            yield
        finally:
            self.give()

    @contextmanager
    def pause(self, rank: Rank) -> Iterator[None]:
        """Inside a turn: others go on meanwhile."""
        self.give()
        try:
            yield
        finally:
            self.take(rank)
