"""Several workers as one engine: a request goes to the ready one with the least to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from cosyserve.contracts import (
    AudioChunk,
    EngineStats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.workers.client import WorkerEngine


class WorkerPool:
    """Implements `contracts.Engine`."""

    def __init__(self, workers: Sequence[WorkerEngine]) -> None:
        self.workers = workers

    async def start(self) -> None:
        await asyncio.gather(*(worker.start() for worker in self.workers))

    @property
    def model(self) -> ModelInfo:
        return self.workers[0].model

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        # Chosen when the first chunk is asked for: only then does the load count this request.
        async with aclosing(self._least_loaded().open(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def embed(self, recording: Recording) -> Voice:
        return await self._least_loaded().embed(recording)

    def stats(self) -> EngineStats:
        return sum((worker.stats() for worker in self.workers), EngineStats(False, 0, 0))

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def _least_loaded(self) -> WorkerEngine:
        return min(self.workers, key=lambda worker: (not worker.stats().ready, worker.load))
