"""Any LM backend as the LM of a scheduler: its streams run on an event loop in a thread.

Admission, retries and chunks are then the scheduler's own, wherever tokens are drawn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import aclosing
from queue import Empty, SimpleQueue

from cosyserve.backends.protocols import LMBackend, LMRequest, SpeechTokens
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.generation import Generation
from cosyserve.errors import CosyError, WorkerError


class BackendLM:
    """Implements `LMLike`."""

    free = 1  # of any number: a scheduler limits its sessions, and each has a row at a time

    def __init__(self, backend: LMBackend) -> None:
        self.backend = backend
        self.rows: list[Generation] = []
        self._streams: dict[Generation, Future[None]] = {}
        self._arrived: SimpleQueue[tuple[Generation, SpeechTokens | CosyError]] = SimpleQueue()
        self._wake: Callable[[], None] = lambda: None
        self._event_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._event_loop.run_forever, name="lm backend", daemon=True
        )

    def start(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from another thread, when there is something for `step` to do."""
        self._wake = wake
        self._thread.start()

    def close(self) -> None:
        """After the scheduler's last step."""

        async def leave_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.backend.close()

        asyncio.run_coroutine_threadsafe(leave_all(), self._event_loop).result()
        self._event_loop.call_soon_threadsafe(self._event_loop.stop)
        self._thread.join()
        self._event_loop.close()

    def join(self, row: Generation) -> None:
        assert row.request, "a backend takes whole texts"
        self.rows.append(row)
        receiving = self._receive(row, row.request)
        self._streams[row] = asyncio.run_coroutine_threadsafe(receiving, self._event_loop)

    def leave(self, row: Generation) -> None:
        self.rows.remove(row)
        self._streams.pop(row).cancel()

    def step(self) -> bool:
        """Hands over what has arrived. False: nothing has."""
        worked = False
        while True:
            try:
                row, item = self._arrived.get_nowait()
            except Empty:
                return worked
            worked = True
            if row not in self._streams:  # it has left meanwhile
                continue
            if isinstance(item, CosyError):
                row.error, row.finish = item, "error"
            else:
                row.tokens += item.ids
                row.finish = item.finish

    def warm_up(self) -> int:
        return 0

    def reserve(self) -> None: ...

    async def _receive(self, row: Generation, request: LMRequest) -> None:
        try:
            async with aclosing(self.backend.generate(request)) as pieces:
                async for piece in pieces:
                    self._hand_over(row, piece)
                    if piece.finish is not None:
                        return
            raise WorkerError("the speech LM left in the middle of the speech")
        except Exception as error:
            self._hand_over(row, client_error(error))

    def _hand_over(self, row: Generation, item: SpeechTokens | CosyError) -> None:
        self._arrived.put((row, item))
        self._wake()
