"""Worker processes: real ones, killed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import (
    AudioChunk,
    Mode,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.workers import client
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.messages import (
    Open,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.pool import WorkerPool
from cosyserve.errors import (
    CheckpointError,
    CosyError,
    InputError,
    OverloadError,
    SlowReaderError,
    VoiceError,
    WorkerError,
)
from cosyserve.voices.memory import mirror
from cosyserve.voices.memory.mirror import voice_bytes
from cosyserve.voices.shipped import describe
from tests.engine.mocks import VOICE
from tests.waiting import PATIENCE, START_PATIENCE, until

TEXT = "The quick brown fox jumps over the lazy dog."
OPTIONS = WorkerOptions("test", device="cpu", threads=1, slots=4, waiting=2)
forked = pytest.mark.usefixtures("forked")


def request(engine: WorkerPool | LocalEngine, text: str = TEXT, seed: int = 0) -> SpeechRequest:
    return SpeechRequest(text, engine.model.voices["default"], Mode.PRESET, seed=seed, stream=True)


async def listen(chunks: AsyncIterator[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples async for chunk in chunks])


def with_workers(count: int, story: Callable[[WorkerPool], Awaitable[None]]) -> None:
    async def run() -> None:
        pool = WorkerPool([WorkerEngine(OPTIONS) for _ in range(count)])
        await pool.start()
        try:
            await story(pool)
        finally:
            await pool.close()
        assert all(worker._process.poll() is not None for worker in pool.workers)

    asyncio.run(run())


@forked
def test_a_life_of_a_worker() -> None:
    async def story(pool: WorkerPool) -> None:
        assert pool.model.speech is False
        local = LocalEngine(assemble(random_parts()), slots=2)
        here = await listen(local.open(request(local, seed=5)))
        await local.close()
        there = await listen(pool.open(request(pool, seed=5)))
        np.testing.assert_allclose(there, here, atol=1e-3)

        together = [listen(pool.open(request(pool, seed=seed))) for seed in range(4)]
        assert all(len(wave) for wave in await asyncio.gather(*together))

        with pytest.raises(InputError, match="nothing to say"):
            await listen(pool.open(request(pool, "...")))
        with pytest.raises(VoiceError, match="embedding"):
            await listen(pool.open(SpeechRequest(TEXT, VOICE, Mode.PRESET)))

        crowd = [asyncio.create_task(listen(pool.open(request(pool)))) for _ in range(16)]
        found = await asyncio.gather(*crowd, return_exceptions=True)
        refused = [item for item in found if isinstance(item, OverloadError)]
        assert refused
        assert all(error.retry_after > 0 for error in refused)
        assert len(refused) + sum(isinstance(item, np.ndarray) for item in found) == 16

        noise = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * 0.1
        voice = await pool.embed(Recording(noise, 24_000, "words", "n", consent="me"))
        assert len(voice.speech_tokens) == 50
        with pytest.raises(CosyError, match="at most 30 s"):
            await pool.embed(Recording(np.zeros(24_000 * 31, np.float32), 24_000))

        for leave_after in (0, 1):
            chunks = pool.open(request(pool, TEXT * 6))
            for _ in range(leave_after):
                await anext(chunks)
            await chunks.aclose()
        await asyncio.sleep(0.5)
        assert (pool.stats().running, pool.stats().waiting) == (0, 0)

        pool.workers[0].options = replace(OPTIONS, max_unread_bytes=1)
        chunks = pool.open(request(pool, TEXT * 6))
        await anext(chunks)  # and no more is read for now
        await until(lambda: pool.stats().running)
        await until(lambda: not pool.stats().running)
        with pytest.raises(SlowReaderError, match="wait to be read"):
            await listen(chunks)

    with_workers(1, story)


@forked
def test_a_killed_worker_ends_its_streams_and_comes_back() -> None:
    async def story(pool: WorkerPool) -> None:
        (worker,) = pool.workers
        assert pool.stats().slots == OPTIONS.slots
        streams = [
            asyncio.create_task(listen(pool.open(request(pool, TEXT * 3)))) for _ in range(4)
        ]
        await asyncio.sleep(0.3)
        os.kill(worker.pid, signal.SIGKILL)
        begun = time.monotonic()
        found = await asyncio.gather(*streams, return_exceptions=True)
        assert time.monotonic() - begun < PATIENCE / 2
        assert all(isinstance(error, WorkerError) for error in found)
        assert not pool.stats().ready
        assert (pool.stats().running, pool.stats().waiting) == (0, 0)
        with pytest.raises(WorkerError, match="being started"):
            await listen(pool.open(request(pool)))
        dead = pool.stats()
        assert (dead.running, dead.waiting, dead.slots, dead.restarts) == (0, 0, 0, 1)
        while not pool.stats().ready:
            assert time.monotonic() - begun < START_PATIENCE
            await asyncio.sleep(0.05)
        chunks = [chunk async for chunk in pool.open(request(pool))]
        times = chunks[0].timeline
        assert times
        assert 0 < times.planned <= times.admitted < times.first_tokens < times.sent
        while pool.stats().sessions == dead.sessions:
            await asyncio.sleep(0.02)
        assert pool.stats().sessions == dead.sessions + 1  # totals survive, too

    with_workers(1, story)


@forked
def test_a_voice_travels_once_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[bool] = []

    def note(number: int, asked: SpeechRequest, voice: bytes | None) -> Open:
        brought.append(voice is not None)
        return Open.of(number, asked, voice)

    monkeypatch.setattr(client, "Open", SimpleNamespace(of=note))
    monkeypatch.setattr(client, "FORGET_SECONDS", 0.02)

    async def run() -> None:
        model = describe(assemble(random_parts()))
        size = len(voice_bytes(replace(model.voices["default"], name="a")))
        engine = WorkerEngine(replace(OPTIONS, voice_cache_bytes=2 * size))
        await engine.start()
        default = engine.model.voices["default"]
        voices = [replace(default, name=name) for name in ("a", "b", "c")]
        large = replace(default, prompt_text="x" * 3 * size)

        async def say(voice: Voice) -> None:
            asked = SpeechRequest("Hi.", voice, Mode.PRESET, stream=True)
            assert len(await listen(engine.open(asked)))

        try:
            for voice in (voices[0], voices[0], voices[1], voices[0]):
                await say(voice)
            assert brought == [True, False, True, False]
            brought.clear()
            for voice in (voices[2], voices[0], voices[1]):  # b made room for c, c for b
                await say(voice)
            assert brought == [True, False, True]
            brought.clear()
            await asyncio.gather(*(say(voice) for voice in (large, large, voices[0])))
            assert brought == [True, True, False]  # too large to be kept
            brought.clear()
            with monkeypatch.context() as idle:
                idle.setattr(mirror, "IDLE_SECONDS", 0.0)
                while len(engine._sent._known):
                    await asyncio.sleep(0.01)
            with monkeypatch.context() as careless:
                careless.setattr(engine._sent, "bytes_for", lambda _: None)
                with pytest.raises(VoiceError, match="forgotten"):  # by the worker, too
                    await say(voices[0])
            brought.clear()
            await say(voices[0])
            assert brought == [True]
            brought.clear()
            os.kill(engine.pid, signal.SIGKILL)
            while engine.stats().ready:
                await asyncio.sleep(0.01)
            while not engine.stats().ready:
                await asyncio.sleep(0.05)
            await say(voices[0])
            assert brought == [True]
        finally:
            await engine.close()

    asyncio.run(run())


@forked
def test_a_request_goes_to_the_worker_with_the_least_to_do() -> None:
    async def story(pool: WorkerPool) -> None:
        streams = [asyncio.create_task(listen(pool.open(request(pool)))) for _ in range(4)]
        await asyncio.sleep(0.1)
        assert [len(worker._replies) for worker in pool.workers] == [2, 2]
        await asyncio.gather(*streams)
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        while pool.workers[0].stats().ready:
            await asyncio.sleep(0.02)
        assert pool.stats().ready
        assert len(await listen(pool.open(request(pool))))

    with_workers(2, story)


@forked
def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        engine = WorkerEngine(WorkerOptions(str(tmp_path)))
        with pytest.raises(CheckpointError, match="not a model folder"):
            await engine.start()
        await engine.close()

    asyncio.run(run())


def test_the_gateways_side_imports_no_torch() -> None:
    code = "import cosyserve.engine.workers.client, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
