"""Values by key within a number of bytes: the least recently used go first.

Two of the same limit that see the same calls hold the same keys.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByteLRU(Generic[Value]):
    """May be used from several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[str, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Without counting as a use."""
        return key in self._kept

    def get(self, key: str) -> Value | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: str, value: Value, size: int) -> None:
        """Keeps the value, unless it alone is larger than the limit."""
        with self._lock:
            if key in self._kept:
                self.bytes -= self._kept.pop(key)[1]
            if size > self.limit:
                return
            self._kept[key] = value, size
            self.bytes += size
            while self.bytes > self.limit:
                self.bytes -= self._kept.popitem(last=False)[1][1]
