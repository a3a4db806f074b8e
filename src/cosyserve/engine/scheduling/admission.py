"""How quickly sessions end while others wait, and so how long a new one would have to.

Knows no session.
"""

from __future__ import annotations

from collections import deque

from cosyserve.errors import OverloadError

REMEMBERED = 16
ENOUGH = 4


class Admission:
    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=REMEMBERED)
        self._seconds = 0.0  # from one end to the next

    def ended(self, now: float, waiting: int) -> None:
        """A session has come to its end, while so many waited. When nobody does, the time to the
        next end tells when requests come, not how long they take."""
        if not waiting:
            self._ends.clear()
            return
        self._ends.append(now)
        if len(self._ends) >= ENOUGH:
            self._seconds = (now - self._ends[0]) / (len(self._ends) - 1)

    def check(self, ahead: int, *, full: bool, max_wait: float) -> None:
        """Refuses whoever would wait too long behind so many, or finds no place."""
        wait = ahead * self._seconds  # 0 while nothing is known
        if full or wait > max_wait:
            raise OverloadError(f"{ahead} requests are waiting already", max(1.0, wait))
