"""LM and token2wav in processes of their own: the same speech, and one fate."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Mode, Recording, SpeechRequest
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.workers.client import WorkerEngine, WorkerOptions
from cosyserve.errors import CheckpointError, InputError, OverloadError, VoiceError, WorkerError
from tests.engine.mocks import VOICE

TEXT = "The quick brown fox jumps over the lazy dog."
OPTIONS = WorkerOptions("test", device="cpu", threads=1, slots=2, waiting=2, token2wav_device="cpu")


async def listen(chunks: AsyncIterator[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples async for chunk in chunks])


async def story(engine: WorkerEngine) -> None:
    voice = engine.model.voices["default"]

    def request(text: str = TEXT, seed: int = 0, stream: bool = True) -> SpeechRequest:
        return SpeechRequest(text, voice, Mode.PRESET, seed=seed, stream=stream)

    local = LocalEngine(assemble(random_parts()), slots=2)
    for stream in (True, False):
        here = await listen(local.open(request(seed=5, stream=stream)))
        there = await listen(engine.open(request(seed=5, stream=stream)))
        np.testing.assert_allclose(there, here, atol=1e-3)
    await local.close()

    with pytest.raises(InputError, match="nothing to say"):
        await listen(engine.open(request("...")))
    with pytest.raises(VoiceError, match="embedding"):
        await listen(engine.open(SpeechRequest(TEXT, VOICE, Mode.PRESET)))

    crowd = [asyncio.create_task(listen(engine.open(request()))) for _ in range(8)]
    found = await asyncio.gather(*crowd, return_exceptions=True)
    assert sum(isinstance(item, OverloadError) for item in found) == 4
    assert sum(isinstance(item, np.ndarray) for item in found) == 4

    chunks = engine.open(request(TEXT * 6))
    await anext(chunks)
    await chunks.aclose()
    async with asyncio.timeout(10):
        while engine.stats().sessions != 9 or engine.stats().running:
            await asyncio.sleep(0.01)

    async def pieces() -> AsyncIterator[str]:
        for letter in f"{TEXT} {TEXT}":
            yield letter

    arriving = SpeechRequest(pieces(), voice, Mode.PRESET, seed=5, stream=True)
    parts = [await listen(engine.open(request(seed=seed))) for seed in (5, 6)]
    np.testing.assert_allclose(
        await listen(engine.open(arriving)), np.concatenate(parts), atol=1e-3
    )

    noise = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    learned = await engine.embed(Recording(noise, 24_000, "words", "n", consent="me"))
    spoken = SpeechRequest("Hi.", learned, Mode.ZERO_SHOT, stream=True)
    assert len(await listen(engine.open(spoken)))

    streams = [asyncio.create_task(listen(engine.open(request(TEXT * 4)))) for _ in range(2)]
    await asyncio.sleep(0.3)
    _, token2wav = engine.pids
    os.kill(token2wav, signal.SIGKILL)
    begun = time.monotonic()
    found = await asyncio.gather(*streams, return_exceptions=True)
    assert time.monotonic() - begun < 1.0
    assert all(isinstance(error, WorkerError) for error in found)
    while not engine.stats().ready:
        assert time.monotonic() - begun < 30
        await asyncio.sleep(0.05)
    assert len(await listen(engine.open(request())))


def test_a_life_of_two_processes() -> None:
    async def run() -> None:
        engine = WorkerEngine(OPTIONS)
        await engine.start()
        assert len(engine.pids) == 2
        try:
            await story(engine)
        finally:
            await engine.close()
        assert all(process.poll() is not None for process in engine._processes)

    asyncio.run(run())


def test_a_model_that_neither_can_load(tmp_path: Path) -> None:
    async def run() -> None:
        engine = WorkerEngine(replace(OPTIONS, model=str(tmp_path)))
        with pytest.raises(CheckpointError, match="not a model folder"):
            await engine.start()
        await engine.close()

    asyncio.run(run())
