"""A real Triton server whose speech LM is behind an LLM server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Mode, Sampling, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.errors import LLMServerError
from cosyserve.triton.engine import TritonEngine
from tests.backends.llm_server import LLMServer, never_ends, refuses
from tests.backends.our_lm import serving_lm
from tests.decibels import decibels
from tests.triton.server import Served, serving

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(scope="module")
def llm(either_model: Model) -> Iterator[LLMServer]:
    with serving_lm(either_model) as server:
        yield server


@pytest.fixture(scope="module")
def triton(
    llm: LLMServer,
    either_model: Model,
    native3_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("llm")
    family = either_model.config.family
    model = str(native3_folder) if family == "cosyvoice3" else "test"
    ours = ("llm_top_p=0.8", "llm_top_k=25", "llm_temperature=1.0", "llm_api_key=secret")
    settings = (f"llm_url={llm.url}", *ours)
    with serving(folder, model, *settings, models=[family, "token2wav"]) as server:
        yield server


def spoken(triton: Served, request: SpeechRequest, most: int = 1000) -> list[np.ndarray]:
    async def listen() -> list[np.ndarray]:
        engine = TritonEngine.of(f"triton://{triton.grpc}")
        try:
            await engine.start()
            found = []
            async with contextlib.aclosing(engine.open(request)) as chunks:
                async for chunk in chunks:
                    found.append(chunk.samples)
                    if len(found) == most:
                        break
            return found
        finally:
            await engine.close()

    return asyncio.run(listen())


def test_the_speech_is_that_of_one_process(
    triton: Served, either_model: Model, either_voice: Voice
) -> None:
    request = SpeechRequest(TEXT, either_voice, seed=5, stream=True)
    expected = [chunk.samples for chunk in speak(either_model, request)]
    found = spoken(triton, request)
    assert len(found[0]) == len(expected[0])  # later ones take what the LM has drawn by then
    assert decibels(np.concatenate(found), np.concatenate(expected)) < -40


def test_the_server_is_asked_as_the_settings_say(
    triton: Served, llm: LLMServer, either_voice: Voice
) -> None:
    llm.bodies.clear()
    sampling = Sampling(0.7, 11, temperature=0.9)
    spoken(triton, SpeechRequest("Hello.", either_voice, sampling=sampling, stream=True))
    body, headers = llm.bodies[0], llm.headers[-1]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.9, 0.7, 11)
    assert headers["authorization"] == "Bearer secret"


def test_whoever_leaves_is_not_spoken_for(
    triton: Served, llm: LLMServer, either_voice: Voice
) -> None:
    llm.answers.append(never_ends)
    spoken(triton, SpeechRequest(TEXT * 3, either_voice, stream=True), most=1)
    llm.wait_until_idle()


def test_an_llm_server_that_refuses_is_told(
    triton: Served, llm: LLMServer, either_voice: Voice
) -> None:
    llm.answers.append(refuses(404))
    with pytest.raises(LLMServerError, match="the LLM server refuses with status 404"):
        spoken(triton, SpeechRequest(TEXT, either_voice, Mode.ZERO_SHOT, stream=True))
