"""Cartesia's contexts, as its own clients and those of LiveKit and Pipecat ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from cosyserve.audio import AudioFormat, encode
from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Cartesia
from tests.gateway.serving import Running


@pytest.mark.parametrize(
    ("encoding", "ours", "rate"),
    [
        ("pcm_s16le", AudioFormat.PCM, 44_100),
        ("pcm_f32le", AudioFormat.F32, 24_000),
        ("pcm_mulaw", AudioFormat.MULAW, 8000),
        ("pcm_alaw", AudioFormat.ALAW, 8000),
    ],
)
def test_encodings(server: Running, encoding: str, ours: AudioFormat, rate: int) -> None:
    asked = {"container": "raw", "encoding": encoding, "sample_rate": rate}
    with dialed(server, Cartesia) as twin:
        twin.piece("Hello.", output_format=asked, **{"continue": False})
        heard = twin.hear()
    assert heard.audio == encode(server.engine.samples, ours, out_rate=rate)
    assert heard.events == [{"type": "done", "done": True, "status_code": 200, "context_id": "a"}]


def test_a_voice_as_newer_versions_name_it(server: Running) -> None:
    with dialed(server, Cartesia) as twin:
        speed = {"speed": 1.2, "emotion": "calm"}
        twin.piece("Hello.", voice="alloy", generation_config=speed, **{"continue": False})
        assert twin.is_over(twin.hear().last)
    assert server.engine.requests[0].speed == 1.2


def test_contexts_and_their_flushes(server: Running) -> None:
    with dialed(server, Cartesia) as twin:
        twin.piece("One. ", flush=True)
        twin.piece("Two. ", max_buffer_delay_ms=0)
        twin.end()
        heard = twin.hear()
    assert server.engine.texts == ["One. ", "Two. "]
    assert heard.audio == 2 * encode(server.engine.samples, AudioFormat.PCM)
    first, *rest = heard.events
    assert first == {
        "type": "flush_done",
        "done": False,
        "flush_done": True,
        "flush_id": 1,
        "status_code": 206,
        "context_id": "a",
    }
    assert [event["type"] for event in rest][-1] == "done"


def test_contexts_speak_at_the_same_time(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Cartesia) as twin:
        for name in "ab":
            twin.name = name
            twin.text(f"{name}.")
            twin.hear_audio()
        assert server.engine.open_sessions == 2
        twin.cancel()
        assert twin.hear().last["context_id"] == "b"
        assert server.engine.open_sessions == 1
        server.engine.held = False
        twin.name = "a"
        twin.end()
        assert twin.hear().last["context_id"] == "a"
    assert [text.strip() for text in server.engine.texts] == ["a."]


def test_a_cancel_that_comes_too_late_is_no_mistake(server: Running) -> None:
    with dialed(server, Cartesia) as twin:
        assert twin.is_over(twin.say().last)
        twin.cancel()
        twin.name = "b"
        heard = twin.say()
        assert [event["type"] for event in heard.events] == ["done"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"context_id": None}, "context_id"),
        ({"voice": {"mode": "embedding", "embedding": [0.1]}}, "voice"),
        ({"voice": 5}, "voice: Input should be an object"),
        ({"voice": ""}, "voice.id: String should have"),
        ({"output_format": {"container": "wav"}}, "output_format.container"),
        ({"output_format": {"encoding": "mp3"}}, "no audio format 'mp3'"),
        ({"output_format": {"sample_rate": 1}}, "sample_rate"),
        ({"model_id": "tts-9"}, "no model named 'tts-9'"),
        ({"generation_config": {"speed": 99}}, "speed"),
        ({"context_id": "x" * 201}, "context_id"),
    ],
)
def test_errors(server: Running, fields: dict[str, Any], told: str) -> None:
    with dialed(server, Cartesia) as twin:
        twin.piece("Hello.", **fields)
        event = twin.hear().last
        assert (event["type"], event["done"]) == ("error", True)
        assert 400 <= event["status_code"] < 500
        assert told in event["message"]
        assert event["context_id"] == fields.get("context_id", "a")
        twin.name = "b"
        assert twin.is_over(twin.say().last)


def test_text_for_a_context_that_was_ended(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Cartesia) as twin:
        twin.text("Hello.")
        twin.end()
        twin.text("More.")
        assert "this context is closed" in twin.error(twin.hear().last)
        server.engine.held = False
        assert twin.is_over(twin.hear().last)
