"""Mixes of voices, as Kokoro's clients write them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosyserve.contracts import Mode, Voice
from cosyserve.gateway.voices.mixing import read_mix
from tests.gateway.serving import Running
from tests.gateway.sine_engine import voice_of

EAST, NORTH = (np.eye(192, dtype=np.float32)[n] * (n + 3) for n in range(2))


def preset(embedding: np.ndarray) -> Voice:
    return replace(voice_of(0), embedding=embedding)


def test_how_a_mix_is_read() -> None:
    assert read_mix("a(2)+b(1)") == [("a", 2.0), ("b", 1.0)]
    assert read_mix(" af_heart + 小芳(0.5) ") == [("af_heart", 1.0), ("小芳", 0.5)]


def test_presets_are_mixed_by_their_weights(server: Running) -> None:
    voices = {"default": preset(EAST), "east": preset(EAST), "north": preset(NORTH)}
    server.behave(voices=voices)
    assert server.say(voice="east(3)+north(1)").status_code == 200
    assert server.say(voice="north(0)+east").status_code == 200
    mixed, whole = (request.voice for request in server.engine.requests)
    assert mixed.embedding[:3] == pytest.approx([0.75, 0.25, 0.0])
    assert (mixed.mode, mixed.fingerprint) == (Mode.PRESET, "f1")
    assert whole is voices["east"]


def test_voices_of_recordings_are_mixed_without_their_prompts_only(server: Running) -> None:
    server.behave(voices={"default": preset(EAST), "ann": voice_of(9), "north": preset(NORTH)})
    refused = server.say(voice="ann+north")
    assert refused.status_code == 400
    assert '"mode": "preset"' in refused.json()["error"]["message"]
    for fields in ({"mode": "preset"}, {"x_vector_only_mode": True}):
        assert server.say(voice="ann+north", **fields).status_code == 200
    assert [request.mode for request in server.engine.requests] == ["preset", "preset"]
    assert not server.engine.requests[0].voice.speech_tokens.size


def test_voices_of_other_models_are_not_mixed(server: Running) -> None:
    other, unknown = (replace(preset(NORTH), fingerprint=mark) for mark in ("f2", ""))
    server.behave(voices={"default": preset(EAST), "other": other, "unknown": unknown})
    refused = server.say(voice="default+other")
    assert "different models" in refused.json()["error"]["message"]
    assert server.say(voice="unknown+default").status_code == 200
    assert server.engine.requests[0].voice.fingerprint == "f1"


def test_voices_that_only_a_triton_server_has_are_not_mixed(server: Running) -> None:
    empty = preset(np.ones(1, np.float32))
    server.behave(voices={"default": empty, "a": empty, "b": preset(EAST)})
    assert server.say(voice="a+b").status_code == 400
