"""The official client, unchanged."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import openai
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import OverloadError
from tests.gateway.serving import Running


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client:
        yield client


def test_whole(client: openai.OpenAI, server: Running) -> None:
    answer = client.audio.speech.create(
        model="gpt-4o-mini-tts", voice="alloy", input="Hello.", response_format="pcm"
    )
    assert answer.content == encode(server.engine.samples, AudioFormat.PCM)


def test_streaming(client: openai.OpenAI, server: Running) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice={"id": "default"}, input="Hello.", response_format="pcm", speed=1.25
    ) as answer:
        data = b"".join(answer.iter_bytes())
    assert data == encode(server.engine.samples, AudioFormat.PCM)
    assert server.engine.requests[0].speed == 1.25


def test_events(client: openai.OpenAI, server: Running) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1",
        voice="nova",
        input="Hello.",
        response_format="pcm",
        stream_format="sse",
        extra_body={"seed": 3},
    ) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    *deltas, done = map(json.loads, lines)
    data = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert data == encode(server.engine.samples, AudioFormat.PCM)
    assert done["usage"]["output_tokens"] == 40


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["sine"]
    assert client.models.retrieve("sine").owned_by == "cosyserve"


def test_errors_have_their_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.audio.speech.create(model="whisper-1", voice="alloy", input="Hello.")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert missing.value.request_id
    with pytest.raises(openai.BadRequestError, match="4096"):
        client.audio.speech.create(model="tts-1", voice="alloy", input="a" * 4097)


def test_an_overload_is_a_rate_limit(client: openai.OpenAI, server: Running) -> None:
    server.behave(error=OverloadError("the queue is full", 2.5))
    with pytest.raises(openai.RateLimitError) as refused:
        client.audio.speech.create(model="tts-1", voice="alloy", input="Hello.")
    assert refused.value.response.headers["retry-after"] == "3"
