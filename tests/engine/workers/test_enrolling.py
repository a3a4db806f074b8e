"""Recordings that nobody waits for any more are not heard, on either side of a worker's socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Engine, Recording, Voice
from cosyserve.engine import in_process
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.workers import worker
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.worker import Worker
from tests.conftest import noise
from tests.engine.mocks import VOICE

OPTIONS = WorkerOptions("test", device="cpu", slots=1)


class ThreadedWorker(WorkerEngine):
    """A worker in a thread instead of a process."""

    name = "worker"

    def __init__(self, model: Model) -> None:
        super().__init__(OPTIONS)
        self.loaded = model
        self.far: Worker

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        ours, theirs = socket.socketpair()
        self.far = await asyncio.to_thread(Worker, theirs, self.loaded, OPTIONS)
        thread = threading.Thread(target=self.far.run)
        thread.start()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield reader, writer
        finally:
            writer.close()
            await asyncio.to_thread(thread.join)
            theirs.close()


class Listening:
    """Hears recordings only when it is told to go on."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.go_on = threading.Event()

    def __call__(self, _: Model, recording: Recording) -> Voice:
        self.heard.append(recording.text)
        assert self.go_on.wait(10)
        return VOICE


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Listening:
    found = Listening()
    monkeypatch.setattr(worker, "enroll", found)
    monkeypatch.setattr(in_process, "enroll", found)
    return found


def recording(text: str) -> Recording:
    return Recording(np.zeros(24_000, np.float32), 24_000, text)


async def leave_and_be_followed(engine: Engine, listening: Listening) -> None:
    async with asyncio.timeout(10):
        crowd = [asyncio.create_task(engine.embed(recording(str(n)))) for n in range(9)]
        while not listening.heard:
            await asyncio.sleep(0.01)
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)
        follower = asyncio.create_task(engine.embed(recording("follower")))
        await asyncio.sleep(0.1)
        listening.go_on.set()
        assert (await follower).prompt_text == VOICE.prompt_text
        assert listening.heard == ["0", "follower"]  # what runs can't be stopped


def test_a_worker_forgets_what_nobody_waits_for(model: Model, listening: Listening) -> None:
    async def run() -> None:
        engine = ThreadedWorker(model)
        await engine.start()
        try:
            await leave_and_be_followed(engine, listening)
            async with asyncio.timeout(10):
                while engine.far._enrolments:  # the voice was sent a moment before
                    await asyncio.sleep(0.01)
        finally:
            await engine.close()

    asyncio.run(run())


def test_so_does_an_engine_in_this_process(model: Model, listening: Listening) -> None:
    async def run() -> None:
        engine = LocalEngine(model, slots=1)
        try:
            await leave_and_be_followed(engine, listening)
        finally:
            await engine.close()

    asyncio.run(run())


def test_a_worker_hears_what_is_heard_here(either_model: Model, either_voice: Voice) -> None:
    async def run() -> Voice:
        engine = ThreadedWorker(either_model)
        await engine.start()
        try:
            return await engine.embed(noise())
        finally:
            await engine.close()

    voice = asyncio.run(run())
    assert (voice.prompt_text, voice.family) == (either_voice.prompt_text, either_voice.family)
    np.testing.assert_array_equal(voice.speech_tokens, either_voice.speech_tokens)
    np.testing.assert_allclose(voice.mel, either_voice.mel, atol=1e-5)
    np.testing.assert_allclose(voice.embedding, either_voice.embedding, atol=1e-5)
