"""A part of the engine as a service: its loop is a thread, those who ask are asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.scheduling.loop import Loop, S
from cosyserve.errors import CosyError

Item = TypeVar("Item")
Leave = Callable[[S], None]


class ServiceThread(Generic[S]):
    def __init__(self, part: S, name: str) -> None:
        self.part = part
        self._loop = Loop(part)
        self._thread = threading.Thread(target=self._loop.run, name=name, daemon=True)
        self._thread.start()

    async def listen(
        self, enter: Callable[[S, Callable[[Item | CosyError], None]], Leave[S]]
    ) -> AsyncGenerator[Item, None]:
        """Items that the part sends to the sink given to `enter`, which returns what frees all
        that it took: that is called when the iterator is closed."""
        event_loop = asyncio.get_running_loop()
        items: asyncio.Queue[Item | CosyError] = asyncio.Queue()
        entered: list[Leave[S]] = []

        def sink(item: Item | CosyError) -> None:
            with suppress(RuntimeError):  # the caller's event loop is over
                event_loop.call_soon_threadsafe(items.put_nowait, item)

        def join(part: S) -> None:
            try:
                entered.append(enter(part, sink))
            except Exception as error:  # the caller must not wait for ever
                sink(client_error(error))

        def leave_all(part: S) -> None:
            for leave in entered:
                leave(part)

        self._loop.submit(join)
        try:
            while True:
                item = await items.get()
                if isinstance(item, CosyError):
                    raise item
                yield item
        finally:
            self._loop.submit(leave_all)

    def submit(self, command: Callable[[S], None]) -> None:
        self._loop.submit(command)

    async def close(self) -> None:
        self._loop.stop()
        await asyncio.to_thread(self._thread.join)
