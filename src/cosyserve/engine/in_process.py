"""An engine in this process, asynchronous and for many at once: its scheduler runs in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from cosyserve.backends.protocols import LMBackend
from cosyserve.checkpoints.model import Model
from cosyserve.choices import MAX_WAITING
from cosyserve.contracts import AudioChunk, EngineStats, Recording, SpeechRequest, Voice
from cosyserve.engine.compute.profile import LATENCY, Profile
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.start import start_scheduler
from cosyserve.engine.split.backend_lm import BackendLM
from cosyserve.engine.text_stream import feeding, opened
from cosyserve.errors import CosyError
from cosyserve.text.number_process import NumberProcess
from cosyserve.voices.enroll import enroll
from cosyserve.voices.shipped import describe


class LocalEngine:
    """Implements `contracts.Engine`."""

    def __init__(
        self,
        model: Model,
        lm: LMBackend | None = None,
        *,
        slots: int = 0,
        max_waiting: int = MAX_WAITING,
        profile: Profile = LATENCY,
    ) -> None:
        """Another LM may draw the tokens: then the model needs no weights of one."""
        self._model = model
        self._numbers = NumberProcess()
        self._lm = BackendLM(lm) if lm else None
        _, tokenizer = model.need_text_side()
        self.model = describe(model)
        scheduler = start_scheduler(
            *(model, self._lm),
            voices=self.model.voices,
            slots=slots,
            max_waiting=max_waiting,
            profile=profile,
        )
        self._loop = Loop(scheduler)
        if self._lm:
            self._lm.start(self._loop.wake)
            self.model = replace(self.model, takes_pieces=False)
        self._intake = Intake(self._loop, tokenizer, self._numbers)
        self._thread = threading.Thread(target=self._loop.run, name="engine", daemon=True)
        self._thread.start()
        self._enrolling = ThreadPoolExecutor(1, "enroll")

    def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        return opened(request, self._open, takes_pieces=self.model.takes_pieces)

    async def _open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        event_loop = asyncio.get_running_loop()
        items: asyncio.Queue[AudioChunk | Exception] = asyncio.Queue()

        def sink(item: AudioChunk | CosyError) -> None:
            with suppress(RuntimeError):  # the caller's event loop is over
                event_loop.call_soon_threadsafe(items.put_nowait, item)

        ticket = Ticket(self._intake, request, sink)
        ticket.open()
        try:
            async with feeding(request.text, ticket.push, ticket.end, items.put_nowait):
                while True:
                    item = await items.get()
                    if isinstance(item, Exception):
                        raise item
                    yield item
                    if item.final:
                        return
        finally:
            ticket.cancel()

    async def embed(self, recording: Recording) -> Voice:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._enrolling, enroll, self._model, recording)

    def stats(self) -> EngineStats:
        return self._loop.scheduler.stats()

    async def close(self) -> None:
        self._intake.close()
        self._loop.stop()
        await asyncio.to_thread(self._thread.join)
        if self._lm:
            await asyncio.to_thread(self._lm.close)
        self._enrolling.shutdown()
        self._numbers.close()
