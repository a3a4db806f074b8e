"""A server that is small, full, or loses a process. It serves a DiT model."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.prepare import prepare
from cosyserve.contracts import Floats, Recording, SpeechRequest
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.speak import speak
from cosyserve.engine.tts import load
from cosyserve.errors import OverloadError, VoiceError, WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.engine import TritonEngine
from cosyserve.triton.keeper import TritonKeeper
from cosyserve.triton.process import Ports
from cosyserve.triton.tensors import Array
from cosyserve.triton.vocabulary import COSYVOICE2 as VOCABULARY
from cosyserve.voices.enroll import enroll
from tests.triton.asking import asking, comes_to_rest
from tests.triton.server import Served

TEXT = "The quick brown fox jumps over the lazy dog."
LIMITS = {"first_seconds": 60.0, "between_seconds": 60.0}
SMALL = ("slots=1", "waiting=2", "max_requests=6", "stream_seconds=1")


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> Path:
    out = tmp_path_factory.mktemp("dit") / "model"
    prepare([str(hugging_face_lm_folder), str(token2wav_folder)], out, None, progress=False)
    return out


@pytest.fixture(scope="module")
def dit(folder: Path) -> Model:
    return load(folder, dtype="float32").model


@pytest.fixture(scope="module")
def keeper(folder: Path) -> Iterator[TritonKeeper]:
    ports = Ports.free()
    given = [*SMALL, "dtype=float32"]
    repository = folder.parent / "repository"
    render(TritonSettings.of(given, model_dir=str(folder)), repository)
    kept = TritonKeeper(repository, ports)
    try:
        kept.server.wait_ready()
        yield kept
    finally:
        kept.stop()


@pytest.fixture
def small(keeper: TritonKeeper, folder: Path) -> Served:
    return Served(keeper.server, folder.parent / "repository", folder.parent / "voices")


def given(recording: Floats, text: str = TEXT) -> dict[str, Array]:
    return {
        "reference_wav": recording[None],
        "reference_wav_len": np.array([[len(recording)]], np.int32),
        "reference_text": tensors.text("A few words."),
        "target_text": tensors.text(text),
    }


async def streamed(client: TritonClient, inputs: dict[str, Array]) -> list[Floats]:
    found = client.stream("cosyvoice2_dit", inputs, **LIMITS)
    return [answer["waveform"][0] async for answer in found]


def test_a_dit_stream_is_the_engines(small: Served, dit: Model, recording: Floats) -> None:
    voice = enroll(dit, Recording(recording, 16_000, "A few words."))
    request = SpeechRequest(TEXT, voice, stream=True)
    expected = [chunk.samples for chunk in speak(dit, request)]
    found = asking(small, lambda c: streamed(c, given(recording)))
    assert [len(samples) for samples in found] == [len(samples) for samples in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), atol=1e-3)


def test_a_server_without_a_voice_of_its_own_says_so(small: Served) -> None:
    async def ask(client: TritonClient) -> None:
        with pytest.raises(VoiceError, match=r"no voice of its own.*spk2info\.pt"):
            await streamed(client, {"target_text": tensors.text(TEXT)})
        tokens = {"target_speech_tokens": np.array([VOCABULARY.ids([1, 2])], np.int32)}
        with pytest.raises(VoiceError, match="no voice of its own"):
            await client.infer("token2wav_dit", tokens, seconds=30)
        assert (await client.config("cosyvoice2_dit", seconds=5))["parameters"][
            "shipped_voices"
        ] == {}
        engine = TritonEngine.of(f"triton://{small.grpc}/cosyvoice2_dit")
        await engine.start()
        assert engine.model.voices == {}
        await engine.close()

    asking(small, ask)


def chunk(recording: Floats, tokens: list[int], **more: Array) -> dict[str, Array]:
    return {
        "target_speech_tokens": np.array([VOCABULARY.ids(tokens)], np.int32),
        "reference_wav": recording[None],
        "reference_wav_len": np.array([[len(recording)]], np.int32),
        "finalize": np.array([[not more]]),
    } | more


def test_a_dit_model_takes_a_recording(small: Served, dit: Model, recording: Floats) -> None:
    tokens = np.random.default_rng(0).integers(0, 6561, 40).tolist()
    token2wav = Token2Wav(*dit.need_token2wav())
    voice = enroll(dit, Recording(recording, 16_000, ""))
    begun = token2wav.begin(voice, with_prompt=True, seed=0, speed=1.0)
    ((expected, _),) = token2wav.whole([begun], [tokens])
    found = asking(small, lambda c: c.infer("token2wav_dit", chunk(recording, tokens), seconds=30))
    np.testing.assert_allclose(found["waveform"][0], expected, atol=1e-3)


def test_a_stream_that_nobody_goes_on_with_is_freed(small: Served, recording: Floats) -> None:
    tokens = np.random.default_rng(0).integers(0, 6561, 28).tolist()
    inputs = chunk(recording, tokens, token_offset=np.zeros((1, 1), np.int32))
    asking(small, lambda c: c.infer("token2wav_dit", inputs, seconds=30))
    streams = ("cosyserve_streams", "token2wav_dit")
    time.sleep(0.3)
    assert small.held()[streams] == 1
    comes_to_rest(small)  # after stream_seconds


def test_a_full_server_refuses_and_goes_on(small: Served, recording: Floats) -> None:
    async def together(client: TritonClient) -> list[list[Floats] | BaseException]:
        asked = (streamed(client, given(recording)) for _ in range(12))
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asking(small, together)
    refused = [item for item in found if isinstance(item, BaseException)]
    assert {type(error) for error in refused} == {OverloadError}
    assert len(refused) < len(found)  # one speaks, two wait; whoever comes behind them may, too
    comes_to_rest(small)
    assert asking(small, lambda c: streamed(c, given(recording)))


def test_whoever_can_not_wait_leaves_nothing(small: Served, recording: Floats) -> None:
    inputs = given(recording, " ".join([TEXT] * 8))
    with pytest.raises(WorkerError):
        asking(small, lambda c: c.infer("cosyvoice2_dit_offline", inputs, seconds=0.3))
    comes_to_rest(small)


def test_a_process_that_dies_ends_its_streams_and_is_replaced(
    keeper: TritonKeeper, small: Served, recording: Floats
) -> None:
    before = keeper.restarts

    async def kill(client: TritonClient) -> float:
        speaking = asyncio.create_task(streamed(client, given(recording, " ".join([TEXT] * 8))))
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        for pid in keeper.server.stubs().values():
            if b"/token2wav_dit/" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError):
            await speaking
        return time.monotonic() - begun

    assert asking(small, kill) < 5
    until = time.monotonic() + 120
    while keeper.restarts == before or not keeper.server.ready:
        assert time.monotonic() < until, "the server does not come back"
        time.sleep(0.1)
    assert asking(small, lambda c: streamed(c, given(recording)))
