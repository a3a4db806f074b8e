"""An engine in this process: its loop is a thread. Knows no socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from cosyserve.audio import Audio
from cosyserve.contracts import (
    AudioChunk,
    CosyError,
    EngineStats,
    Floats,
    ModelInfo,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.loop import Loop
from cosyserve.engine.scheduler import SLOTS, WAITING, Scheduler
from cosyserve.engine.session import Session
from cosyserve.engine.tts import TTS
from cosyserve.models.model import Model
from cosyserve.voices.enroll import enroll
from cosyserve.voices.file import load_voice


def describe(model: Model) -> ModelInfo:
    """What the model is; its voice `default` is always there."""
    config = model.config
    voices = {file.stem: load_voice(file) for file in model.voices}
    if "default" not in voices:
        voices["default"] = TTS(model).default_voice
    return ModelInfo(config.name, config.family, config.fingerprint, config.speech, voices)


class LocalEngine:
    """Implements `contracts.Engine`."""

    def __init__(self, model: Model, *, slots: int = SLOTS, waiting: int = WAITING) -> None:
        self.model = describe(model)
        self._model = model
        self._loop = Loop(Scheduler.of(model, slots=slots, waiting=waiting))
        self._thread = threading.Thread(target=self._loop.run, name="engine", daemon=True)
        self._thread.start()
        self._enrolling = ThreadPoolExecutor(1, "enroll")

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        here = asyncio.get_running_loop()
        found: asyncio.Queue[AudioChunk | CosyError] = asyncio.Queue()
        opened: list[Session] = []

        def sink(item: AudioChunk | CosyError) -> None:
            here.call_soon_threadsafe(found.put_nowait, item)

        def begin(scheduler: Scheduler) -> None:
            try:
                opened.append(scheduler.open(request, sink))
            except CosyError as error:
                sink(error)

        def cancel(scheduler: Scheduler) -> None:
            for session in opened:
                scheduler.cancel(session)

        self._loop.submit(begin)
        try:
            while True:
                item = await found.get()
                if isinstance(item, CosyError):
                    raise item
                yield item
                if item.final:
                    return
        finally:
            self._loop.submit(cancel)

    async def embed(
        self, samples: Floats, rate: int, text: str, *, name: str, language: str, consent: str
    ) -> Voice:
        def learn() -> Voice:
            audio = Audio(samples, rate)
            return enroll(self._model, audio, text, name=name, language=language, consent=consent)

        return await asyncio.get_running_loop().run_in_executor(self._enrolling, learn)

    def stats(self) -> EngineStats:
        return self._loop.scheduler.stats()

    async def close(self) -> None:
        self._loop.stop()
        await asyncio.to_thread(self._thread.join)
        self._enrolling.shutdown()
