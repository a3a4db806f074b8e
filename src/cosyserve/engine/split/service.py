"""A part of the engine that runs alone: its loop is a thread, its listeners are asynchronous.

Knows no LM and no audio.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.scheduling.loop import Driven, Loop
from cosyserve.errors import CosyError

Item = TypeVar("Item")
Leave = Callable[[Driven], None]


class ServiceThread(Generic[Driven]):
    def __init__(self, part: Driven, name: str) -> None:
        self.part = part
        self._loop = Loop(part)
        self._thread = threading.Thread(target=self._loop.run, name=name, daemon=True)
        self._thread.start()

    async def listen(
        self, enter: Callable[[Driven, Callable[[Item | CosyError], None]], Leave[Driven]]
    ) -> AsyncGenerator[Item, None]:
        """What the sink given to `enter` hears. It returns what frees all that it took, which is
        called when nobody listens any more."""
        here = asyncio.get_running_loop()
        found: asyncio.Queue[Item | CosyError] = asyncio.Queue()
        entered: list[Leave[Driven]] = []

        def sink(item: Item | CosyError) -> None:
            with suppress(RuntimeError):  # the listener's loop is over
                here.call_soon_threadsafe(found.put_nowait, item)

        def come(part: Driven) -> None:
            try:
                entered.append(enter(part, sink))
            except Exception as error:  # whoever asked must hear of it, not wait for ever
                sink(client_error(error))

        def go(part: Driven) -> None:
            for leave in entered:
                leave(part)

        self._loop.submit(come)
        try:
            while True:
                item = await found.get()
                if isinstance(item, CosyError):
                    raise item
                yield item
        finally:
            self._loop.submit(go)

    def tell(self, command: Callable[[Driven], None]) -> None:
        self._loop.submit(command)

    async def close(self) -> None:
        self._loop.stop()
        await asyncio.to_thread(self._thread.join)
