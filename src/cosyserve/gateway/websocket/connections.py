"""The WebSockets that are open: how many may be, and how they are sent away.

Knows no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cosyserve.gateway.limits import shutting_down, too_many


class Leaving(Protocol):
    def leave(self) -> None:
        """Goes, now or when what is being said is over."""
        ...

    def cut(self) -> None:
        """Ends what is being said."""
        ...


class Connections:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._open: set[Leaving] = set()
        self.closed = False

    @property
    def count(self) -> int:
        return len(self._open)

    @contextmanager
    def place(self, connection: Leaving) -> Iterator[None]:
        if self.closed:
            raise shutting_down()
        if self.count >= self._capacity:
            raise too_many(f"{self._capacity} WebSockets are open")
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.remove(connection)

    def close(self) -> None:
        """No more of them; those that are silent leave, the others when they are."""
        self.closed = True
        for connection in tuple(self._open):
            connection.leave()

    def cut(self) -> None:
        for connection in tuple(self._open):
            connection.cut()
