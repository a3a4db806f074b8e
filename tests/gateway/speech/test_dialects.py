"""The bodies that the field's clients send, and what becomes of their fields."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.contracts import AudioChunk, Mode, Sampling, SpeechRequest
from cosyserve.gateway.speech.dialects import IGNORED
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import SineEngine, sine
from tests.gateway.test_status import samples

RECORDING = base64.b64encode(encode(sine(24_000), AudioFormat.WAV)).decode()
DATA_URL = f"data:audio/wav;base64,{RECORDING}"
OPENAI = {"model": "tts-1", "input": "Hello.", "voice": "alloy"}

# What each client sends, and the media type that it takes.
BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "LiveKit": (
        {
            "input": "Hello.",
            "model": "gpt-4o-mini-tts",
            "voice": "ash",
            "response_format": "mp3",
            "speed": 1.0,
            "stream_format": "sse",
        },
        "text/event-stream",
    ),
    "LiveKit, tts-1": (
        {**OPENAI, "response_format": "mp3", "speed": 1.0, "stream_format": "audio"},
        "audio/mpeg",
    ),
    "Pipecat": (
        {
            "input": "Hello.",
            "model": "gpt-4o-mini-tts",
            "voice": "marin",
            "response_format": "pcm",
        },
        "audio/pcm",
    ),
    "Open WebUI": (OPENAI, "audio/mpeg"),
    "RealtimeTTS": (
        {
            "model": "tts-1",
            "voice": "nova",
            "input": "Hello.",
            "instructions": None,
            "response_format": "mp3",
        },
        "audio/mpeg",
    ),
    "vllm bench": (
        {
            "model": "sine",
            "input": "Hello.",
            "stream": True,
            "stream_format": "audio",
            "response_format": "pcm",
        },
        "audio/pcm",
    ),
    "vllm bench, seed-tts": (
        {
            "model": "sine",
            "input": "Hello.",
            "stream": True,
            "stream_format": "audio",
            "response_format": "pcm",
            "ref_audio": DATA_URL,
            "ref_text": "Hum.",
            "task_type": "Base",
        },
        "audio/pcm",
    ),
    "vLLM-Omni": (
        {
            "input": "Hello.",
            "speaker": "default",
            "task_type": "CustomVoice",
            "language": "Auto",
            "response_format": "wav",
            "max_new_tokens": 2048,
            "initial_codec_chunk_frames": 4,
        },
        "audio/wav",
    ),
    "SGLang-Omni": (
        {
            "input": "Hello.",
            "response_format": "wav",
            "references": [{"audio_path": DATA_URL, "text": "Hum."}],
            "stream": False,
            "temperature": None,
            "top_p": 0.9,
            "top_k": 50,
            "stage_params": {},
        },
        "audio/wav",
    ),
    "Kokoro": (
        {
            "model": "tts-1",
            "input": "Hello.",
            "voice": "default",
            "response_format": "mp3",
            "download_format": "mp3",
            "speed": 1,
            "stream": True,
            "return_download_link": True,
            "lang_code": "a",
            "volume_multiplier": 1.0,
            "normalization_options": {"normalize": True},
        },
        "audio/mpeg",
    ),
    "Home Assistant openai_tts": (
        {**OPENAI, "response_format": "opus", "speed": 1.0, "instructions": "Calmly."},
        "audio/ogg; codecs=opus",
    ),
    "SillyTavern": (
        {**OPENAI, "response_format": "mp3", "speed": 1},
        "audio/mpeg",
    ),
    "wyoming-openai": ({**OPENAI, "response_format": "wav", "voice": "verse"}, "audio/wav"),
    "LiteLLM": ({**OPENAI, "user": "42"}, "audio/mpeg"),
}


@pytest.mark.parametrize("client", BODIES)
def test_the_bodies_of_the_field(server: Running, client: str) -> None:
    body, media_type = BODIES[client]
    headers = {"Authorization": "Bearer"} if client == "SillyTavern" else {}
    answer = server.http.post(SPEECH, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    assert kind.removesuffix("; charset=utf-8") == media_type
    assert len(answer.content) > 1024
    (request,) = server.engine.requests
    assert request.text == "Hello."


def spoken(server: Running, **fields: Any) -> SpeechRequest:
    answer = server.say(response_format="pcm", **fields)
    assert answer.status_code == 200, answer.text
    return server.engine.requests[-1]


def test_null_is_absent_and_no_model_is_the_model(server: Running) -> None:
    fields = ("model", "voice", "speed", "instructions", "seed", "stream_format", "language")
    request = spoken(server, **dict.fromkeys(fields))
    assert (request.speed, request.seed, request.instruction) == (1.0, 0, "")


@pytest.mark.parametrize(
    ("fields", "language"),
    [
        ({"language": "Auto"}, ""),
        ({"language": "Chinese"}, "zh"),
        ({"language": "en-GB"}, "en-GB"),
        ({"lang_code": "z"}, "zh"),
        ({"lang_code": "fr-fr"}, "fr-fr"),
    ],
)
def test_languages_by_other_names(server: Running, fields: dict[str, str], language: str) -> None:
    assert spoken(server, **fields).language == language


@pytest.mark.parametrize(
    "fields",
    [
        {"ref_audio": RECORDING, "ref_text": "Hum."},
        {"ref_audio": [DATA_URL], "ref_text": "Hum."},
        {"references": [{"data": RECORDING, "media_type": "audio/wav", "text": "Hum."}]},
        {"references": [{"audio_path": DATA_URL}], "ref_text": "Hum."},
        {"references": [{"audio": None, "audio_path": DATA_URL, "text": "Hum."}]},
        {"reference_audio": DATA_URL, "reference_text": "Hum."},
    ],
)
def test_recordings_by_other_names(server: Running, fields: dict[str, Any]) -> None:
    request = spoken(server, **fields)
    assert len(request.voice.speech_tokens) == 25
    assert (request.voice.prompt_text, request.mode) == ("Hum.", Mode.ZERO_SHOT)
    alone = spoken(server, x_vector_only_mode=True, **fields)
    assert alone.mode is Mode.PRESET


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({}, None),
        ({"temperature": None}, None),
        ({"temperature": 1}, Sampling()),
        ({"temperature": 0.8}, Sampling(temperature=0.8)),
        ({"temperature": 2, "top_k": 7}, Sampling(top_k=7, temperature=2.0)),
        ({"temperature": 0.001}, Sampling(temperature=0.01)),
        ({"temperature": 0}, Sampling(top_k=1, temperature=0.01)),
        ({"top_p": 0.5}, Sampling(top_p=0.5)),
        ({"top_p": 0.5, "top_k": 7}, Sampling(0.5, 7)),
    ],
)
def test_sampling(server: Running, fields: dict[str, float], sampling: Sampling | None) -> None:
    assert spoken(server, **fields).sampling == sampling


@pytest.mark.parametrize("most", [1, 10, 15, 39, 40, 41])
def test_the_most_tokens_end_the_speech(server: Running, most: int) -> None:
    answer = server.say(response_format="pcm", max_new_tokens=most)
    assert len(answer.content) == 2 * 960 * min(most, 40)
    outcome = server.http.get(f"{SPEECH}/{answer.headers['x-request-id']}").json()
    assert outcome["finish_reason"] == ("length" if most < 40 else "stop")
    assert outcome["usage"]["output_tokens"] == min(most, 40)
    assert outcome["usage"]["input_tokens"] == 7


class Vocoder(SineEngine):
    """Its samples come after their tokens, and a pause behind the last."""

    async def open(self, request: SpeechRequest) -> AsyncIterator[AudioChunk]:
        samples, held_back = np.zeros(0, np.float32), 3840
        async for chunk in super().open(request):
            samples = np.append(samples, chunk.samples[:: int(request.speed)])
            if chunk.final:
                samples, held_back = np.append(samples, np.zeros(5760, np.float32)), 0
            end = len(samples) - held_back
            yield replace(chunk, samples=samples[:end])
            samples = samples[end:]


@pytest.mark.parametrize("speed", [1, 2])
def test_the_most_tokens_are_25_a_second_whenever_they_are_heard(speed: int) -> None:
    with serving(Vocoder()) as server:
        whole = server.say(response_format="pcm", speed=speed).content
        assert len(whole) == 2 * (40 * 960 // speed + 5760)
        for most in range(1, 42):
            answer = server.say(response_format="pcm", speed=speed, max_new_tokens=most)
            assert answer.content == whole[: 2 * 960 * most // speed] if most < 40 else whole
            outcome = server.http.get(f"{SPEECH}/{answer.headers['x-request-id']}").json()
            assert outcome["finish_reason"] == ("length" if most < 40 else "stop")
            assert outcome["usage"]["output_tokens"] == min(most, 40)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_sample_rates(server: Running, rate: int) -> None:
    audio = decode(server.say(response_format="wav", sample_rate=rate).content)
    assert audio.rate == rate
    assert len(audio.samples) / rate == pytest.approx(1.6, abs=0.001)


def test_events_are_sent_to_whoever_asks_for_them(server: Running) -> None:
    for fields, accept, kind in (
        ({"stream": True}, "*/*", "audio/pcm"),
        ({"stream": True}, "text/event-stream", "text/event-stream; charset=utf-8"),
        ({"stream": True, "stream_format": "audio"}, "text/event-stream", "audio/pcm"),
        ({"stream_format": "sse"}, "*/*", "text/event-stream; charset=utf-8"),
        ({}, "text/event-stream", "audio/pcm"),
    ):
        body = {"input": "Hello.", "response_format": "pcm", **fields}
        answer = server.http.post(SPEECH, json=body, headers={"accept": accept})
        assert answer.headers["content-type"] == kind


def test_unknown_fields_are_counted_under_few_names() -> None:
    with serving() as server:
        for number in range(3):
            fields: dict[str, Any] = {f"mine_{number}": number, "volume_multiplier": 2}
            assert server.say(**fields).status_code == 200
        counts = samples(server.http.get("/metrics").text)
    names = {key[1]: n for key, n in counts.items() if key[0] == "cosyserve_ignored_fields_total"}
    assert names == {"other": 3, "volume_multiplier": 3}
    assert "other" not in IGNORED


def test_an_operator_may_be_strict_and_name_models_and_voices() -> None:
    settings = Settings(
        strict_fields=True, model_aliases="house, gpt-x", voice_aliases="alloy=default,nova=gone"
    )
    with serving(settings=settings) as server:
        refused = server.say(tempo=2)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tempo")
        assert server.say(temperature=0.8).status_code == 200
        assert server.say(speaker="default", language="English").status_code == 200
        assert server.say(model="gpt-x").status_code == 200
        assert server.say(model="tts-1").status_code == 404
        assert server.say(voice="alloy").status_code == 200
        assert server.say(voice="nova").status_code == 404
        listed = [voice["id"] for voice in server.http.get("/v1/audio/voices").json()["voices"]]
        assert listed == ["default", "alloy"]
    with serving(settings=Settings(model_aliases="*")) as server:
        assert server.say(model="gpt-realtime-2.1-mini").status_code == 200
