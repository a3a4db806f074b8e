"""cosyvoice2 on a real server: streams and whole answers, voices, leaving, refusals."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import SAMPLE_RATE, Floats, Mode, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.errors import CosyError, InputError, MissingVoiceError, VoiceError
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.tensors import Array, Tensors
from cosyserve.voices import file as voice_file
from tests.triton.asking import asking, comes_to_rest
from tests.triton.server import Served

TEXT = "The quick brown fox jumps over the lazy dog."
LONG = " ".join(f"{TEXT} And once more, number {n}." for n in ("one", "two", "three"))
STREAMED, WHOLE = "cosyvoice2", "cosyvoice2_offline"


def inputs(text: str = TEXT, voice: Voice | None = None, **options: Any) -> dict[str, Array]:
    found = {"target_text": tensors.text(text)}
    if voice:
        found["voice"] = np.frombuffer(voice_file.to_bytes(voice), np.uint8)[None]
    if options:
        found["options"] = tensors.text(json.dumps(options))
    return found


async def streamed(
    client: TritonClient, given: Tensors, request_id: str = "0"
) -> list[dict[str, Array]]:
    limits = {"first_seconds": 60.0, "between_seconds": 60.0}
    return [a async for a in client.stream(STREAMED, given, request_id=request_id, **limits)]


def samples(answers: list[dict[str, Array]]) -> Floats:
    return np.concatenate([answer["waveform"][0] for answer in answers])


def details(answer: dict[str, Array]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer["details"][0, 0])
    return found


def in_process(model: Model, request: SpeechRequest) -> Floats:
    return np.concatenate([chunk.samples for chunk in speak(model, request)])


def test_a_stream_is_the_engines(served: Served, model: Model, voice: Voice) -> None:
    request = SpeechRequest(LONG, voice, seed=7, speed=1.2, stream=True)
    expected = list(speak(model, request))
    found = asking(served, lambda c: streamed(c, inputs(LONG, voice, seed=7, speed=1.2)))
    told = [details(answer) for answer in found]
    # How many tokens a later chunk takes depends on how far the LM has run ahead.
    assert [chunk["index"] for chunk in told] == list(range(len(told)))
    assert told[0]["tokens"] == expected[0].tokens
    assert sum(chunk["tokens"] for chunk in told) == sum(chunk.tokens for chunk in expected)
    lengths = [answer["waveform"].size for answer in found]
    starts = np.cumsum([0, *lengths[:-1]]) / SAMPLE_RATE
    assert [chunk["start"] for chunk in told] == pytest.approx(starts.tolist())
    assert [chunk["finish"] for chunk in told[:-1]] == [None] * (len(told) - 1)
    assert told[-1]["finish"] == expected[-1].finish
    texts = sum(chunk["text_tokens"] for chunk in told), sum(c.text_tokens for c in expected)
    assert texts[0] == texts[1] > 0
    spoken = np.concatenate([chunk.samples for chunk in expected])
    np.testing.assert_allclose(samples(found), spoken, atol=1e-3)


def test_a_whole_answer_is_the_engines(served: Served, model: Model, voice: Voice) -> None:
    given = inputs(TEXT, voice, seed=3)
    found = asking(served, lambda c: c.infer(WHOLE, given, seconds=60))
    expected = in_process(model, SpeechRequest(TEXT, voice, seed=3))
    np.testing.assert_allclose(found["waveform"][0], expected, atol=1e-3)
    assert details(found)["finish"] == "stop"


def test_the_originals_http_client_is_answered(
    served: Served, model: Model, voice: Voice, recording: Floats
) -> None:
    """Its very body: JSON, a recording padded with silence, the request id 0 for everybody."""
    padded = np.concatenate([recording, np.zeros(8_000, np.float32)])
    body = {
        "inputs": [
            {"name": name, "shape": shape, "datatype": kind, "data": data}
            for name, shape, kind, data in (
                ("reference_wav", [1, len(padded)], "FP32", padded.tolist()),
                ("reference_wav_len", [1, 1], "INT32", [len(recording)]),
                ("reference_text", [1, 1], "BYTES", ["A few words."]),
                ("target_text", [1, 1], "BYTES", [TEXT]),
            )
        ]
    }
    request = urllib.request.Request(
        f"http://{served.http}/v2/models/{WHOLE}/infer?request_id=0",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        outputs = json.load(answer)["outputs"]
    expected = in_process(model, SpeechRequest(TEXT, voice))
    np.testing.assert_allclose(outputs[0]["data"], expected, atol=1e-3)


def test_http_streams_events(served: Served) -> None:
    request = urllib.request.Request(
        f"http://{served.http}/v2/models/{STREAMED}/generate_stream",
        json.dumps({"target_text": TEXT}).encode(),
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        events = [line for line in answer.read().decode().splitlines() if line]
    assert len(events) > 1
    assert all(line.startswith("data: ") for line in events)
    assert len(json.loads(events[0].removeprefix("data: "))["waveform"]) > 1_000


def test_a_voice_of_the_store_is_found_by_its_name(
    served: Served, model: Model, voice: Voice
) -> None:
    given = inputs() | {"voice_id": tensors.text("noise")}
    found = asking(served, lambda c: c.infer(WHOLE, given, seconds=60))
    expected = in_process(model, SpeechRequest(TEXT, voice))
    np.testing.assert_allclose(found["waveform"][0], expected, atol=1e-3)


def test_two_clients_with_one_id_and_two_voices_with_one_text(
    served: Served, model: Model, voice: Voice
) -> None:
    """Nothing of one gets into the other, chunk by chunk at the same time."""
    noise = np.random.default_rng(1).standard_normal(voice.mel.shape).astype(np.float32)
    other = replace(voice, mel=voice.mel + noise, embedding=-voice.embedding)
    asked = [(voice, 5), (other, 5), (voice, 6), (other, 6), (voice, 5)]

    async def together(client: TritonClient) -> list[list[dict[str, Array]]]:
        given = [inputs(TEXT, voice, seed=seed) for voice, seed in asked]
        return list(await asyncio.gather(*(streamed(client, one, "0") for one in given)))

    for (who, seed), found in zip(asked, asking(served, together), strict=True):
        expected = in_process(model, SpeechRequest(TEXT, who, seed=seed, stream=True))
        np.testing.assert_allclose(samples(found), expected, atol=1e-3)


def test_thirty_two_streams_at_once(served: Served) -> None:
    async def together(client: TritonClient) -> list[list[dict[str, Array]]]:
        given = [inputs(f"This is number {n}.", seed=n) for n in range(32)]
        return list(await asyncio.gather(*(streamed(client, one) for one in given)))

    found = asking(served, together)
    assert len(found) == 32
    for answers in found:
        assert details(answers[-1])["finish"] == "stop"
        assert [details(answer)["index"] for answer in answers] == list(range(len(answers)))
    comes_to_rest(served)


def test_whoever_leaves_whenever_nothing_is_left(served: Served, voice: Voice) -> None:
    chance = random.Random(0)

    async def leave(client: TritonClient) -> None:
        limits = {"first_seconds": 60.0, "between_seconds": 60.0}
        async with aclosing(client.stream(STREAMED, inputs(LONG, voice), **limits)) as answers:
            for _ in range(chance.randrange(4)):
                await anext(answers)
            await asyncio.sleep(chance.uniform(0, 0.2))
        # …or in the middle of waiting
        waiting = asyncio.create_task(streamed(client, inputs(LONG, voice)))
        await asyncio.sleep(chance.uniform(0, 0.4))
        waiting.cancel()
        await asyncio.wait([waiting])

    async def together(client: TritonClient) -> None:
        await asyncio.gather(*(leave(client) for _ in range(8)))

    asking(served, together)
    comes_to_rest(served)
    asking(served, lambda c: streamed(c, inputs()))


REFUSED: list[tuple[dict[str, Array], type[CosyError], str]] = [
    (inputs(" ... "), InputError, "nothing to say"),
    ({"target_text": np.array([[b"\xff\xfe"]], np.object_)}, InputError, "not UTF-8"),
    ({"target_text": np.array([[b"a"], [b"b"]], np.object_)}, InputError, "one row"),
    ({"target_text": np.array([[b"a", b"b"]], np.object_)}, CosyError, "shape"),
    ({"target_text": np.zeros((1, 1), np.float32)}, CosyError, "TYPE_STRING|data-type|STRING"),
    ({"voice_id": tensors.text("noise")}, InputError, "target_text is missing"),
    (inputs() | {"voice_id": tensors.text("nobody")}, MissingVoiceError, "nobody"),
    (inputs() | {"voice_id": tensors.text("../../etc/passwd")}, MissingVoiceError, "name"),
    (inputs() | {"voice": np.zeros((1, 9), np.uint8)}, VoiceError, "not a voice"),
    (inputs() | {"reference_wav": np.zeros((1, 99), np.float32)}, VoiceError, "0.5 s"),
    (
        inputs() | {"reference_wav": np.full((1, 16_000), np.nan, np.float32)},
        VoiceError,
        "finite",
    ),
    (
        inputs()
        | {
            "reference_wav": np.zeros((1, 16_000), np.float32),
            "reference_wav_len": np.array([[99_999]], np.int32),
        },
        InputError,
        "reference_wav_len",
    ),
    (inputs() | {"options": tensors.text("{")}, InputError, "JSON"),
    (inputs(speed=9.0), InputError, "speed"),
    (inputs(sped=1.0), InputError, "unknown option"),
    (inputs(seed="x"), InputError, "seed must be"),
    (inputs(mode="sing"), InputError, Mode.ZERO_SHOT),
    (inputs("word " * 5_000), InputError, "characters"),
]


async def first(client: TritonClient, model: str, given: Tensors) -> dict[str, Array]:
    if model == WHOLE:
        return await client.infer(WHOLE, given, seconds=30)
    limits = {"first_seconds": 30.0, "between_seconds": 30.0}
    async with aclosing(client.stream(STREAMED, given, **limits)) as answers:
        return await anext(answers)


@pytest.mark.parametrize("name", [STREAMED, WHOLE])
def test_what_can_not_be_is_told(served: Served, name: str) -> None:
    async def refused(client: TritonClient) -> None:
        for given, error, complaint in REFUSED:
            with pytest.raises(error, match=complaint):
                await first(client, name, given)

    asking(served, refused)
    comes_to_rest(served)


def test_the_servers_metrics_have_the_times_of_whole_requests(served: Served, voice: Voice) -> None:
    """Triton's own end when a model has taken a request over, long before it is answered."""
    names = ("request_success", "request_duration_us", "first_response_duration_us")

    def totals() -> dict[tuple[str, str], float]:
        comes_to_rest(served)
        found = served.metrics()
        models = ("cosyvoice2", "tensorrt_llm", "token2wav")
        return {
            (name, model): found.get((f"cosyserve_{name}", model), 0.0)
            for name in (*names, "queue_duration_us")
            for model in models
        }

    before, begun = totals(), time.monotonic()
    pieces = asking(served, lambda c: streamed(c, inputs(TEXT, voice)))
    wall = 1e6 * (time.monotonic() - begun)
    time.sleep(0.3)  # they are shown ten times a second
    after = totals()
    grown = {key: after[key] - before[key] for key in after}
    assert grown["request_success", "cosyvoice2"] == grown["request_success", "tensorrt_llm"] == 1
    assert grown["request_success", "token2wav"] == len(pieces)
    assert 0.3 * wall < grown["request_duration_us", "cosyvoice2"] < wall
    for model in ("tensorrt_llm", "token2wav"):
        times = [grown[name, model] for name in ("queue_duration_us", "request_duration_us")]
        assert 0 < times[0] < times[1] < wall
