"""A worker whose speech LM is behind an LLM server: no LM of its own, the same speech."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyserve.backends.llm_server import LLMServer
from cosyserve.checkpoints.model import Model
from cosyserve.choices import LLMSampling
from cosyserve.contracts import Sampling, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import CheckpointError, LLMServerError, OverloadError
from tests.backends import llm_server
from tests.backends.llm_server import never_ends, refuses
from tests.backends.our_lm import serving_lm
from tests.decibels import decibels

pytestmark = pytest.mark.usefixtures("forked")

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(scope="module")
def llm(either_model: Model) -> Iterator[llm_server.LLMServer]:
    with serving_lm(either_model) as server:
        yield server


def with_worker(
    llm: llm_server.LLMServer, story: Callable[[WorkerEngine], Awaitable[None]], model: str = "test"
) -> None:
    server = LLMServer(llm.url, "lm", "secret", sampling=LLMSampling(0.7, 0.9, 30))

    async def run() -> None:
        worker = WorkerEngine(WorkerOptions(model, device="cpu", threads=1, slots=2, llm=server))
        try:
            await worker.start()
            await story(worker)
        finally:
            await worker.close()

    asyncio.run(run())


def test_a_worker_speaks_with_an_lm_elsewhere(
    llm: llm_server.LLMServer, either_model: Model, either_voice: Voice, cosyvoice3_folder: Path
) -> None:
    request = SpeechRequest(TEXT, either_voice, seed=5, stream=True)
    sampling = Sampling(0.9, 30, temperature=0.7)
    as_there = replace(request, sampling=sampling)
    expected = np.concatenate([chunk.samples for chunk in speak(either_model, as_there)])
    folders = {"cosyvoice3": str(cosyvoice3_folder)}

    async def story(worker: WorkerEngine) -> None:
        assert not worker.model.takes_pieces
        assert worker.model.sampling == sampling
        assert b"secret" not in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        found = np.concatenate([chunk.samples async for chunk in worker.open(request)])
        assert decibels(found, expected) < -40
        assert llm.headers[-1]["authorization"] == "Bearer secret"

        llm.answers.append(never_ends)
        async with aclosing(worker.open(replace(request, text=TEXT * 3))) as chunks:
            await anext(chunks)
        await asyncio.to_thread(llm.wait_until_idle)

        llm.answers.append(refuses(404))
        with pytest.raises(LLMServerError, match="refuses with status 404"):
            await anext(worker.open(request))
        llm.answers.append(refuses(429, **{"Retry-After": "77"}))
        with pytest.raises(OverloadError, match="busy") as refused:
            await anext(worker.open(request))
        assert refused.value.retry_after == 77
        finishes = [chunk.finish async for chunk in worker.open(request)]
        assert finishes[-1] in ("stop", "early")  # random weights may end too soon

    with_worker(llm, story, folders.get(either_model.config.family, "test"))


def test_a_model_with_other_speech_tokens_is_refused(model: Model) -> None:
    async def story(worker: WorkerEngine) -> None:
        raise AssertionError("it should not have started")

    with (
        serving_lm(model) as llm,
        pytest.raises(CheckpointError, match="nano' has 2187 speech tokens"),
    ):
        with_worker(llm, story, "nano")
