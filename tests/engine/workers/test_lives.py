"""A worker that is lost in whatever way has another life."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest

from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.workers import client
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.outbox import ALIVE_SECONDS
from cosyserve.errors import WorkerError
from tests.waiting import START_PATIENCE, until

OPTIONS = WorkerOptions("test", device="cpu", threads=1, slots=2)


class LostWorker(WorkerEngine):
    name = "lost worker"

    def __init__(self, error: Exception) -> None:
        super().__init__(WorkerOptions("test"))
        self.error, self.lives = error, 0

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        self.lives += 1
        reader = asyncio.StreamReader()
        reader.set_exception(self.error)
        yield reader, Mock()


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        TimeoutError(110, "silent"),
        OSError(113, "no route"),
        RuntimeError("can't start new thread"),
    ],
)
def test_it_is_started_anew(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.0, 0.0, 0.0))
    worker = LostWorker(error)
    with pytest.raises(WorkerError, match="dies at every start"):
        asyncio.run(worker.start())
    assert worker.lives == 3
    assert worker.stats().restarts == 3


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.0, 0.0, 0.0))
    none_left = Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable"))
    monkeypatch.setattr(client.subprocess, "Popen", none_left)
    with pytest.raises(WorkerError, match="dies at every start"):
        asyncio.run(WorkerEngine(OPTIONS).start())


async def speak(worker: WorkerEngine) -> int:
    request = SpeechRequest("Hello.", worker.model.voices["default"], Mode.PRESET, stream=True)
    return len([chunk async for chunk in worker.open(request)])


def test_a_worker_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK_SECONDS", ALIVE_SECONDS / 2)

    async def run() -> None:
        worker = WorkerEngine(OPTIONS)
        await worker.start()
        try:
            os.kill(hung := worker.pid, signal.SIGSTOP)
            with pytest.raises(WorkerError, match="died while it was speaking"):
                async with asyncio.timeout(10 * ALIVE_SECONDS):
                    await speak(worker)
            await until(lambda: worker.ready, START_PATIENCE)
            assert worker.pid != hung
            assert not os.path.exists(f"/proc/{hung}")
            assert await speak(worker)
        finally:
            await worker.close()

    asyncio.run(run())


@pytest.mark.usefixtures("forked")
def test_who_has_nothing_to_say_or_is_not_heard_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "LOOK_SECONDS", ALIVE_SECONDS / 2)

    async def run() -> None:
        worker = WorkerEngine(OPTIONS)
        await worker.start()
        try:
            silence = ALIVE_SECONDS / 2 * client.LOOKS + 2
            await asyncio.sleep(silence)
            time.sleep(silence)  # the gateway stands still, and what the worker says waits
            await asyncio.sleep(ALIVE_SECONDS)
            assert (worker.ready, worker.stats().restarts) == (True, 0)
        finally:
            await worker.close()

    asyncio.run(run())
