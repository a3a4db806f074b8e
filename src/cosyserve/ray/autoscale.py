"""How many workers there should be, by the requests inside them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from cosyserve.errors import InputError

TARGET = 0.5  # of all slots in use: a new worker is a minute of loading away
SHRINK_SECONDS = 120.0  # that a need must have been lower before anybody is sent away


@dataclass
class Autoscaler:
    """Grows at once, and shrinks to the highest need of the last minutes."""

    least: int
    most: int
    shrink_seconds: float = SHRINK_SECONDS
    _needs: deque[tuple[float, int]] = field(default_factory=deque, init=False)  # falling

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise InputError(
                f"COSYSERVE_RAY_MIN_WORKERS is {self.least}, more than COSYSERVE_RAY_MAX_WORKERS, "
                f"{self.most}"
            )

    def wanted(self, requests: int, slots: int, now: float) -> int:
        """Workers for so many requests, where each has so many slots."""
        need = math.ceil(requests / (TARGET * slots)) if slots else 0
        need = min(max(need, self.least), self.most)
        while self._needs and self._needs[-1][1] <= need:
            self._needs.pop()
        self._needs.append((now, need))
        while self._needs[0][0] < now - self.shrink_seconds:
            self._needs.popleft()
        return self._needs[0][1]
