"""The clients against a real tritonserver: answers, streams, cancelling, time limits, errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from cosyserve.errors import (
    CosyError,
    InputError,
    LLMServerError,
    MissingVoiceError,
    OverloadError,
    WorkerError,
)
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.http_client import TritonHTTPClient
from tests.triton.scripted import OFFLINE, STREAMING, Scripted, script

Client = TritonClient | TritonHTTPClient


@pytest.fixture
def triton(scripted_triton: Scripted) -> Scripted:
    return scripted_triton


def asked(connect: Callable[[], Client], ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = connect()
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


@pytest.fixture(params=["grpc", "http"])
def connect(request: pytest.FixtureRequest, triton: Scripted) -> Callable[[], Client]:
    if request.param == "grpc":
        return lambda: TritonClient(triton.grpc)
    return lambda: TritonHTTPClient(triton.http)


def orders(**words: Any) -> dict[str, tensors.Array]:
    return {"target_text": tensors.text(script(**words))}


async def streamed(client: TritonClient, **words: Any) -> list[tensors.Array]:
    limits = {"first_seconds": 10.0, "between_seconds": 10.0}
    answers = client.stream(STREAMING, orders(**words), **limits)
    return [answer["waveform"] async for answer in answers]


def test_an_answer(connect: Callable[[], Client]) -> None:
    words = orders(chunks=3, samples=5)
    answer = asked(connect, lambda c: c.infer(OFFLINE, words, seconds=10))
    assert answer.keys() == {"waveform"}
    assert answer["waveform"].shape == (1, 15)
    assert answer["waveform"][0, ::5] == pytest.approx([0, 0.01, 0.02])


def test_every_input_arrives(connect: Callable[[], Client]) -> None:
    inputs = orders(echo=True) | {
        "reference_wav": np.full((1, 100), 0.5, np.float32),
        "reference_wav_len": np.array([[80]], np.int32),
        "reference_text": tensors.text("gesagt: 你好"),
    }
    answer = asked(connect, lambda c: c.infer(OFFLINE, inputs, seconds=10))
    assert answer["waveform"][0] * 100_000 == pytest.approx([100, 80, 50, 10])


def test_ready_config_and_statistics(connect: Callable[[], Client]) -> None:
    assert asked(connect, lambda c: c.ready(STREAMING, seconds=5))
    assert not asked(connect, lambda c: c.ready("nobody", seconds=5))
    config = asked(connect, lambda c: c.config(STREAMING, seconds=5))
    assert config["name"] == STREAMING
    assert config["model_transaction_policy"] == {"decoupled": True}
    models = asked(connect, lambda c: c.statistics(seconds=5))
    assert {model["name"] for model in models} == {STREAMING, OFFLINE}


@pytest.mark.parametrize(
    ("model", "inputs", "kind", "told"),
    [
        (OFFLINE, orders(fail="INVALID_ARG"), InputError, "as you wish"),
        (OFFLINE, orders(fail="INTERNAL"), CosyError, "as you wish"),
        (OFFLINE, orders(fail="UNAVAILABLE"), WorkerError, "as you wish"),
        (OFFLINE, {}, InputError, "target_text"),
        (OFFLINE, {"target_text": np.zeros((1, 1), np.float32)}, InputError, "expects .BYTES"),
        ("nobody", orders(), InputError, "unknown model"),
        (STREAMING, orders(), InputError, "decoupled"),
    ],
)
def test_complaints_have_types(
    connect: Callable[[], Client], model: str, inputs: Any, kind: type[CosyError], told: str
) -> None:
    with pytest.raises(kind, match=f"Triton at .*{told}") as caught:
        asked(connect, lambda c: c.infer(model, inputs, seconds=10))
    assert type(caught.value) is kind


def test_a_full_queue_is_an_overload(connect: Callable[[], Client]) -> None:
    async def crowd(client: Any) -> list[Any]:
        slow = orders(pause=0.3)
        asking = [client.infer(OFFLINE, slow, seconds=30) for _ in range(30)]
        return await asyncio.gather(*asking, return_exceptions=True)

    found = asked(connect, crowd)
    assert any(isinstance(answer, dict) for answer in found)
    assert any(isinstance(answer, OverloadError) for answer in found)
    assert all(isinstance(answer, dict | OverloadError) for answer in found)


def test_an_answer_that_takes_too_long(connect: Callable[[], Client]) -> None:
    with pytest.raises(WorkerError):
        asked(connect, lambda c: c.infer(OFFLINE, orders(pause=3), seconds=0.3))


def test_a_proxy_of_the_environment_is_not_asked(
    connect: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert asked(connect, lambda c: c.infer(OFFLINE, orders(chunks=1), seconds=10))


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    for client in (lambda: TritonClient(address), lambda: TritonHTTPClient(address)):
        with pytest.raises(WorkerError, match=f"Triton at .*{address}"):
            asked(client, lambda c: c.infer(OFFLINE, orders(), seconds=5))
        with pytest.raises(WorkerError, match=f"Triton at .*{address}"):
            asked(client, lambda c: c.ready(OFFLINE, seconds=5))


def test_a_stream(triton: Scripted) -> None:
    found = asked(lambda: TritonClient(triton.grpc), lambda c: streamed(c, chunks=5, samples=7))
    assert [chunk.shape for chunk in found] == [(1, 7)] * 5
    assert [chunk[0, 0] for chunk in found] == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])


def test_a_model_that_does_not_stream_is_a_stream_of_one(triton: Scripted) -> None:
    async def one(client: TritonClient) -> list[Any]:
        limits = {"first_seconds": 5.0, "between_seconds": 5.0}
        return [part async for part in client.stream(OFFLINE, orders(chunks=2), **limits)]

    assert len(asked(lambda: TritonClient(triton.grpc), one)) == 1


def test_many_streams_over_one_channel(triton: Scripted) -> None:
    async def crowd(client: TritonClient) -> list[list[tensors.Array]]:
        return await asyncio.gather(
            *(streamed(client, chunks=5, samples=n + 1, pause=0.02) for n in range(4))
        )

    found = asked(lambda: TritonClient(triton.grpc), crowd)
    assert [[chunk.size for chunk in chunks] for chunks in found] == [[n + 1] * 5 for n in range(4)]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("InputError: as you wish", InputError),
        ("MissingVoiceError: as you wish", MissingVoiceError),
        ("WorkerError: as you wish", WorkerError),
        ("OverloadError: as you wish", OverloadError),
        ("LLMServerError: as you wish", LLMServerError),
        ("as you wish", CosyError),
    ],
)
@pytest.mark.parametrize("fail_at", [0, 2])
def test_a_stream_that_fails(
    triton: Scripted, words: str, kind: type[CosyError], fail_at: int
) -> None:
    orders = {"chunks": 4, "fail": "INVALID_ARG", "fail_at": fail_at, "words": words}
    with pytest.raises(kind, match="as you wish") as caught:
        asked(lambda: TritonClient(triton.grpc), lambda c: streamed(c, **orders))
    assert type(caught.value) is kind


def test_closing_a_stream_cancels_it(triton: Scripted) -> None:
    before = triton.cancelled()

    async def leave(client: TritonClient) -> None:
        limits = {"first_seconds": 5.0, "between_seconds": 5.0}
        words = orders(chunks=100, pause=0.05)
        async with contextlib.aclosing(client.stream(STREAMING, words, **limits)) as chunks:
            await anext(chunks)
        await asyncio.to_thread(triton.wait_cancelled, before + 1)

    asked(lambda: TritonClient(triton.grpc), leave)


@pytest.mark.parametrize(("words", "limit"), [({"pause": 5}, 0.3), ({"pause": 0.6}, 0.3)])
def test_a_silent_stream_is_left(triton: Scripted, words: Any, limit: float) -> None:
    before = triton.cancelled()

    async def wait(client: TritonClient) -> None:
        first = limit if words["pause"] > 1 else 5.0
        limits = {"first_seconds": first, "between_seconds": limit}
        async for _ in client.stream(STREAMING, orders(chunks=9, **words), **limits):
            pass

    with pytest.raises(WorkerError, match=r"silent for 0\.3 s"):
        asked(lambda: TritonClient(triton.grpc), wait)
    triton.wait_cancelled(before + 1)
