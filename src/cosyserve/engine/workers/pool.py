"""Several workers as one engine: a request goes to the ready one with the least to do.

If that one dies before the first audio, the request goes to another, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from cosyserve.contracts import (
    AudioChunk,
    EngineStats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.errors import WorkerError

Worker = TypeVar("Worker", bound=WorkerEngine)


class WorkerPool(Generic[Worker]):
    """Implements `contracts.Engine`."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.workers = list(workers)

    async def start(self) -> None:
        await asyncio.gather(*(worker.start() for worker in self.workers))

    @property
    def model(self) -> ModelInfo:
        return self.workers[0].model

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        tried: list[Worker] = []
        has_audio = False
        while True:
            # Chosen when the first chunk is asked for: only then does the load count this request.
            worker = self._least_loaded(tried)
            try:
                async with aclosing(worker.open(request)) as chunks:
                    async for chunk in chunks:
                        has_audio = True
                        yield chunk
                return
            except WorkerError:
                tried.append(worker)
                # A text in pieces can't be read again, and one that kills must not kill them all.
                again = len(tried) == 1 and isinstance(request.text, str) and not has_audio
                if not again or not self._has_ready(tried):
                    raise

    async def embed(self, recording: Recording) -> Voice:
        return await self._least_loaded().embed(recording)

    def stats(self) -> EngineStats:
        return sum((worker.stats() for worker in self.workers), EngineStats(False, 0, 0))

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def _has_ready(self, tried: Sequence[Worker]) -> bool:
        return any(worker.ready for worker in self.workers if worker not in tried)

    def _least_loaded(self, tried: Sequence[Worker] = ()) -> Worker:
        untried = [worker for worker in self.workers if worker not in tried]
        return min(untried, key=lambda worker: (not worker.ready, worker.load))
