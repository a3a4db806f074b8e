"""The open connections: how many there may be, and how they are closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cosyserve.gateway.limits import shutting_down, too_many


class Closable(Protocol):
    def close_when_idle(self) -> None:
        """Closes the connection, now or when its utterance has ended."""
        ...

    def abort(self) -> None:
        """Ends the utterance that is being spoken."""
        ...


class Connections:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._open: set[Closable] = set()
        self._of_kind: Counter[type[Closable]] = Counter()
        self.closed = False

    @property
    def count(self) -> int:
        return len(self._open)

    @contextmanager
    def register(self, connection: Closable, share: float = 1.0) -> Iterator[None]:
        """Counts the connection inside the `with`; `share`: of all places, how many its kind may
        take."""
        if self.closed:
            raise shutting_down()
        if self.count >= self._capacity:
            raise too_many(f"{self._capacity} connections are open")
        kind, most = type(connection), max(1, int(share * self._capacity))
        if self._of_kind[kind] >= most:
            raise too_many(f"{most} connections of this kind are open")
        self._open.add(connection)
        self._of_kind[kind] += 1
        try:
            yield
        finally:
            self._open.remove(connection)
            self._of_kind[kind] -= 1

    def close(self) -> None:
        """Admits no more connections; idle ones close now, the others when they become idle."""
        self.closed = True
        for connection in tuple(self._open):
            connection.close_when_idle()

    def abort(self) -> None:
        for connection in tuple(self._open):
            connection.abort()
