"""The LM on one real Triton server, all other models on another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.errors import WorkerError
from cosyserve.triton.engine import TritonEngine
from tests.decibels import decibels
from tests.triton.asking import comes_to_rest
from tests.triton.server import Served, serving

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(scope="module")
def folder(either_model: Model, native3_folder: Path) -> str:
    return str(native3_folder) if either_model.config.family == "cosyvoice3" else "test"


@pytest.fixture(scope="module")
def lm(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("lm"), folder, "role=lm") as server:
        yield server


@pytest.fixture(scope="module")
def token2wav(
    lm: Served, folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = ("role=token2wav", f"grpc={lm.grpc}")
    with serving(tmp_path_factory.mktemp("token2wav"), folder, *settings) as server:
        yield server


def spoken(server: Served, request: SpeechRequest) -> list[Floats]:
    async def listen() -> list[Floats]:
        engine = TritonEngine.of(f"triton://{server.grpc}")
        try:
            await engine.start()
            return [chunk.samples async for chunk in engine.open(request)]
        finally:
            await engine.close()

    return asyncio.run(listen())


def test_each_has_its_own_models(lm: Served, token2wav: Served, either_model: Model) -> None:
    assert {stub.partition("/")[0] for stub in lm.process.stubs()} == {"tensorrt_llm"}
    others = {stub.partition("/")[0] for stub in token2wav.process.stubs()}
    assert {either_model.config.family, "token2wav", "audio_tokenizer"} <= others
    assert "tensorrt_llm" not in others


@pytest.mark.parametrize("seed", [5, 6])
def test_the_speech_is_that_of_one_process(
    lm: Served, token2wav: Served, either_model: Model, either_voice: Voice, seed: int
) -> None:
    request = SpeechRequest(TEXT, either_voice, seed=seed, stream=True)
    expected = [chunk.samples for chunk in speak(either_model, request)]
    found = spoken(token2wav, request)
    assert len(found[0]) == len(expected[0])  # later ones take what the LM has drawn by then
    assert decibels(np.concatenate(found), np.concatenate(expected)) < -40
    comes_to_rest(token2wav)
    comes_to_rest(lm)


def test_whoever_asks_without_the_lm_is_told(
    lm: Served, token2wav: Served, either_voice: Voice
) -> None:
    """Last of all: the LM's server is gone."""
    lm.process.kill()
    with pytest.raises(WorkerError, match=lm.grpc):
        spoken(token2wav, SpeechRequest(TEXT, either_voice, stream=True))
    comes_to_rest(token2wav)
