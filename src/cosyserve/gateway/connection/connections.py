"""The open connections: how many there may be, and how they are closed."""

from __future__ import annotations

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
        self.closed = False

    @property
    def count(self) -> int:
        return len(self._open)

    @contextmanager
    def register(self, connection: Closable) -> Iterator[None]:
        """Counts the connection inside the `with`."""
        if self.closed:
            raise shutting_down()
        if self.count >= self._capacity:
            raise too_many(f"{self._capacity} connections are open")
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.remove(connection)

    def close(self) -> None:
        """Admits no more connections; idle ones close now, the others when they become idle."""
        self.closed = True
        for connection in tuple(self._open):
            connection.close_when_idle()

    def abort(self) -> None:
        for connection in tuple(self._open):
            connection.abort()
