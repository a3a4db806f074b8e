"""Turns of recordings: a few at once, then client by client, however many each has sent."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cosyserve.errors import OverloadError

Waiting = deque[asyncio.Future[None]]


class Turns:
    def __init__(self, at_once: int, waiting: int, waiting_per_client: int) -> None:
        """`waiting`: of all clients together."""
        self._free = at_once
        self._most, self._most_per_client = waiting, waiting_per_client
        self._waiting: dict[str, Waiting] = {}  # by client; the first is the next
        self._seconds = 1.0  # that the last turn took

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        """Waits for a turn, which lasts as long as the `async with`."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(client)
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds = time.monotonic() - began
            self._pass_on()

    async def _wait(self, client: str) -> None:
        if len(self._waiting.get(client, ())) >= self._most_per_client:
            raise self._full(f"{self._most_per_client} of your recordings")
        if sum(map(len, self._waiting.values())) >= self._most:
            raise self._full(f"{self._most} recordings")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came in the same moment
                self._pass_on()
            self._forget(client, turn)
            raise

    def _full(self, what: str) -> OverloadError:
        return OverloadError(f"{what} wait to be heard, which is the limit", self._seconds)

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(client, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[client]

    def _pass_on(self) -> None:
        while self._waiting:
            client = next(iter(self._waiting))
            queue = deque(turn for turn in self._waiting.pop(client) if not turn.done())
            if queue:  # else all of them are leaving
                queue.popleft().set_result(None)
                if queue:
                    self._waiting[client] = queue  # behind all others
                return
        self._free += 1
