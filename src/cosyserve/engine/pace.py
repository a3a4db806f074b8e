"""How quickly sessions end while others wait, and so how long a new one would have to.

Knows no session.
"""

from __future__ import annotations

from collections import deque

REMEMBERED = 16
ENOUGH = 4


class Pace:
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

    def wait(self, ahead: int) -> float:
        """Seconds that somebody waits behind so many; 0 while nothing is known."""
        return ahead * self._seconds
