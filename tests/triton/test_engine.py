"""Triton servers as an engine, and the gateway in front of them. The models are the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Mode, Recording, Sampling, SpeechRequest, Voice
from cosyserve.engine.in_process import LocalEngine
from cosyserve.errors import CosyError, InputError, VoiceError, WorkerError
from cosyserve.triton import engine as triton_engine
from cosyserve.triton.engine import TritonEngine
from cosyserve.voices.enroll import enroll
from tests import serving
from tests.gateway.talking import talking
from tests.triton.scripted import Scripted
from tests.triton.server import Served

TEXT = "The quick brown fox jumps over the lazy dog."
NOISE = np.random.default_rng(0).standard_normal(3 * 24_000).astype(np.float32) * 0.1


def run(url: str, act: Callable[[TritonEngine], Awaitable[Any]]) -> Any:
    async def acting() -> Any:
        engine = TritonEngine.of(url)
        try:
            await engine.start()
            return await act(engine)
        finally:
            await engine.close()

    return asyncio.run(acting())


async def speech(engine: Any, request: SpeechRequest) -> list[AudioChunk]:
    return [chunk async for chunk in engine.open(request)]


def in_process(model: Model, request: Callable[[Voice], SpeechRequest]) -> list[AudioChunk]:
    async def speak() -> list[AudioChunk]:
        engine = LocalEngine(model)
        try:
            return await speech(engine, request(engine.model.voices["default"]))
        finally:
            await engine.close()

    return asyncio.run(speak())


def assert_same(found: list[AudioChunk], expected: list[AudioChunk]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.abs(ours.samples - theirs.samples).max() < 1e-3
        assert ours.index == theirs.index
        assert ours.start == pytest.approx(theirs.start)
        assert (ours.tokens, ours.finish) == (theirs.tokens, theirs.finish)
        assert ours.text_tokens == theirs.text_tokens


@pytest.mark.parametrize("stream", [True, False])
def test_the_servers_own_voice_speaks_as_in_process(
    served: Served, model: Model, stream: bool
) -> None:
    sampling = Sampling(0.9, 20, temperature=0.7)

    def request(voice: Voice) -> SpeechRequest:
        plain = SpeechRequest(TEXT, voice, Mode.PRESET, seed=7, speed=1.25, stream=stream)
        return replace(plain, sampling=sampling)

    expected = in_process(model, request)
    found = run(f"triton://{served.grpc}", lambda e: speech(e, request(e.model.voices["default"])))
    assert_same(found, expected)
    assert (len(found) > 1) == stream


def test_a_voice_is_learnt_and_speaks_as_in_process(served: Served, model: Model) -> None:
    async def learn(engine: TritonEngine) -> tuple[Voice, list[AudioChunk]]:
        voice = await engine.embed(Recording(NOISE, 24_000, " Words. ", "anna", "en", "Anna"))
        return voice, await speech(engine, SpeechRequest(TEXT, voice, seed=3, stream=True))

    voice, found = run(f"triton://{served.grpc}", learn)
    expected = enroll(model, Recording(NOISE, 24_000, "Words.", name="anna"))
    assert voice.prompt_text == "Words."
    assert (voice.name, voice.language, voice.consent) == ("anna", "en", "Anna")
    assert (voice.family, voice.fingerprint) == (expected.family, expected.fingerprint)
    assert voice.speech_tokens.tolist() == expected.speech_tokens.tolist()
    assert np.abs(voice.mel - expected.mel).max() < 1e-4
    assert np.abs(voice.embedding - expected.embedding).max() < 1e-4
    assert voice.source is None
    request = SpeechRequest(TEXT, voice, seed=3, stream=True)
    assert_same(found, in_process(model, lambda _: request))


def test_text_in_pieces_is_spoken_sentence_by_sentence(served: Served) -> None:
    first, second = "The quick brown fox jumps. ", "Over the lazy dog it goes"
    wait_for_audio = asyncio.Event()

    async def pieces() -> AsyncIterator[str]:
        for letter in first + second[:3]:
            yield letter
        await wait_for_audio.wait()
        yield second[3:]

    async def listen(engine: TritonEngine) -> None:
        voice = engine.model.voices["default"]
        heard = []
        async for chunk in engine.open(SpeechRequest(pieces(), voice, Mode.PRESET, stream=True)):
            heard.append(chunk)
            wait_for_audio.set()
        assert [chunk.index for chunk in heard] == list(range(len(heard)))
        assert [chunk.finish for chunk in heard] == [None] * (len(heard) - 1) + ["stop"]
        alone = [
            chunk
            for number, text in enumerate((first, second))
            for chunk in await speech(
                engine, SpeechRequest(text, voice, Mode.PRESET, stream=True, seed=number)
            )
        ]
        for ours, theirs in zip(heard, alone, strict=False):
            assert np.abs(ours.samples - theirs.samples).max() < 1e-3
        assert len(heard) == len(alone) + 1
        ends = [chunk.start + len(chunk.samples) / 24_000 for chunk in heard]
        assert [chunk.start for chunk in heard[1:]] == pytest.approx(ends[:-1])
        assert sum(c.text_tokens for c in heard) == sum(c.text_tokens for c in alone)

    run(f"triton://{served.grpc}", listen)


def test_complaints_have_types(served: Served, model: Model) -> None:
    voice = enroll(model, Recording(NOISE, 24_000, "Words.", name="anna"))
    cases: list[tuple[SpeechRequest, type[CosyError], str]] = [
        (SpeechRequest("...", voice), InputError, "nothing to say"),
        (SpeechRequest("\ud800", voice), InputError, "surrogate"),
        (SpeechRequest(iter(["a"]), voice), InputError, "asynchronous"),
        (SpeechRequest(TEXT, replace(voice, fingerprint="x")), VoiceError, "another model"),
        (SpeechRequest("", voice, Mode.CONVERT, source=NOISE), InputError, "convert"),
    ]

    async def complain(engine: TritonEngine) -> None:
        for request, kind, told in cases:
            with pytest.raises(kind, match=told) as caught:
                await speech(engine, request)
            assert type(caught.value) is kind
        with pytest.raises(VoiceError, match="at least"):
            await engine.embed(Recording(NOISE[:100], 24_000))

    run(f"triton://{served.grpc}", complain)


def test_whoever_leaves_frees_everything(served: Served) -> None:
    async def leave(engine: TritonEngine) -> None:
        voice = engine.model.voices["default"]
        request = SpeechRequest(TEXT * 4, voice, Mode.PRESET, stream=True)
        for _ in range(3):
            async with contextlib.aclosing(engine.open(request)) as chunks:
                await anext(chunks)
                assert engine.stats().running == 1
            assert engine.stats().running == 0
        until = time.monotonic() + 5
        while any((await asyncio.to_thread(served.held)).values()):
            assert time.monotonic() < until, f"held: {served.held()}"
            await asyncio.sleep(0.05)

    run(f"triton://{served.grpc}", leave)


@pytest.fixture(scope="module")
def gateway(
    served: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, openai.OpenAI]]:
    home = tmp_path_factory.mktemp("home")
    with serving.served(home, "--engine", f"triton://{served.grpc}") as (url, _):
        yield url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("kind", ["wav", "pcm", "flac", "mp3", "opus", "aac"])
def test_every_format_is_streamed(gateway: tuple[str, openai.OpenAI], kind: Any) -> None:
    pieces = []
    with gateway[1].audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT * 2, response_format=kind
    ) as response:
        pieces += list(response.iter_bytes())
    assert len(pieces) > 1
    if kind != "pcm":
        assert decode(b"".join(pieces)).seconds > 2


def test_events(gateway: tuple[str, openai.OpenAI]) -> None:
    body = {"model": "test", "input": TEXT, "voice": "default", "stream_format": "sse"}
    told = httpx.post(f"{gateway[0]}/v1/audio/speech", json=body, timeout=60).text
    assert told.count("speech.audio.delta") > 1
    assert "speech.audio.done" in told


def test_text_in_pieces_over_the_websocket(gateway: tuple[str, openai.OpenAI]) -> None:
    asked = {"model": "test", "response_format": "pcm", "seed": 5}
    body = {**asked, "input": TEXT, "voice": "default"}
    whole = httpx.post(f"{gateway[0]}/v1/audio/speech", json=body, timeout=60).content
    with talking(gateway[0]) as talk:
        assert talk.say(*TEXT, **asked).audio == whole  # one sentence is one request
        talk.start(**asked)
        talk.text(TEXT + " ", "And")
        talk.hear("started")
        first = talk.socket.recv(timeout=30)
        assert isinstance(first, bytes)
        talk.text(" another one.")
        talk.send("end")
        heard = talk.hear()
        assert heard.last["finish_reason"] == "stop"
        assert (first + heard.audio).startswith(whole)
        assert len(heard.audio) > len(whole) // 2


def test_voices_of_the_gateway(gateway: tuple[str, openai.OpenAI]) -> None:
    url, client = gateway
    file = {"file": ("me.flac", encode(NOISE, AudioFormat.FLAC))}
    about = {"name": "anna", "consent": "Anna, by mail", "text": "Words."}
    voices = f"{url}/v1/audio/voices"
    assert httpx.post(voices, data=about, files=file, timeout=60).status_code == 201
    names = {voice["id"] for voice in httpx.get(voices).json()["data"]}
    assert names == {"anna", "default"}
    spoken = {
        name: client.audio.speech.create(
            model="test", voice=name, input=TEXT, response_format="pcm"
        ).content
        for name in names
    }
    assert spoken["anna"] != spoken["default"]
    assert "cosyserve_sessions_total" in httpx.get(f"{url}/metrics").text
    assert httpx.get(f"{url}/ready").status_code == 200


def test_a_server_with_another_model_is_left_out(served: Served, scripted_triton: Scripted) -> None:
    async def look(engine: TritonEngine) -> list[bool]:
        found = []
        for _ in range(20):
            await asyncio.sleep(0.1)
            found.append(sum(server.ready for server in engine._servers) == 1)
        return found

    assert all(run(f"triton://{served.grpc},{scripted_triton.grpc}", look))


@pytest.mark.parametrize(
    "url", ["triton://", "triton://here", "triton://a:1,b", "triton://a:99999", "grpc://a:1"]
)
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(InputError, match="write triton://HOST:8001"):
        TritonEngine.of(url)


def test_a_model_that_does_not_stream_is_named(served: Served) -> None:
    with pytest.raises(InputError, match="'cosyvoice2_offline' gives one answer"):
        run(f"triton://{served.grpc}/cosyvoice2_offline", lambda _: asyncio.sleep(0))


def test_the_gateways_side_costs_no_torch() -> None:
    code = "import sys, cosyserve.triton.engine; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "START_SECONDS", 0.7)
    with pytest.raises(WorkerError, match=r"no server is ready: Triton at 127\.0\.0\.1:1: "):
        run("triton://127.0.0.1:1", lambda _: asyncio.sleep(0))
