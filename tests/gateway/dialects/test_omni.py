"""The sessions of vLLM-Omni and SGLang-Omni, at the address of our own protocol."""

from __future__ import annotations

from typing import Any

import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.errors import WorkerError
from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Omni
from tests.gateway.serving import Running
from tests.gateway.talking import close_code, talking

AUDIO = {"sentence_index": 0, "sentence_text": "", "format": "pcm", "sample_rate": 24_000}


def test_sessions(server: Running) -> None:
    with dialed(server, Omni) as twin:
        heard = twin.say("One.", seed=5, split_granularity="none")
        whole = encode(server.engine.samples, AudioFormat.PCM)
        assert heard.audio == whole
        assert heard.events == [
            {"type": "session.configured"},
            {"type": "audio.start", **AUDIO},
            {"type": "audio.done", "sentence_index": 0, "total_bytes": len(whole), "error": False},
            {"type": "session.done", "total_sentences": 1},
        ]
        twin.text("Two.")  # spoken as the first
        twin.end()
        assert twin.hear().audio == whole
        twin.end()
        assert twin.hear().events == [{"type": "session.done", "total_sentences": 0}]
        twin.send({"type": "session.close"})
        assert close_code(twin.socket) == 1000
    assert [request.text for request in server.engine.requests] == ["One.", "Two."]  # whole
    assert [request.seed for request in server.engine.requests] == [5, 5]


def test_without_a_format_it_is_wav(server: Running) -> None:
    with dialed(server, Omni) as twin:
        twin.send({"type": "session.config", "voice": "default"})
        twin.text("Hello.")
        twin.end()
        assert decode(twin.hear().audio).seconds == pytest.approx(1.6)


def test_speech_that_fails(server: Running) -> None:
    server.behave(error=WorkerError("the engine is gone"), error_at=1)
    with dialed(server, Omni) as twin:
        assert "the engine is gone" in twin.error(twin.say().last)
        assert twin.hear().events[-2]["error"] is True


def test_a_session_that_is_closed_is_stopped(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Omni) as twin:
        twin.start()
        twin.text("Hello.")
        twin.hear_audio()
        twin.send({"type": "session.close"})
        assert twin.is_over(twin.hear().last)
        assert close_code(twin.socket) == 1000
        assert server.engine.open_sessions == 0


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"word_timestamps": True}, "times of words"),
        ({"response_format": "ogg"}, "response_format"),
        ({"speed": 0}, "speed"),
        ({"split_granularity": "word"}, "be 'sentence', 'clause' or 'none'"),
    ],
)
def test_what_a_session_can_not_have(server: Running, fields: dict[str, Any], told: str) -> None:
    with dialed(server, Omni) as twin:
        twin.start(**fields)
        assert told in twin.error(twin.hear().last)
        assert not twin.error(twin.say().last)


def test_the_order_of_messages(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Omni) as twin:
        twin.start(voice="")
        assert "voice" in twin.error(twin.hear().last)
        twin.text("Too early.")
        assert "send 'session.config' first" in twin.error(twin.hear().last)
        twin.start()
        twin.text("Hello.")
        twin.start()
        assert "has a text" in twin.error(twin.hear().last)
        twin.end()
        twin.text("More.")
        assert "wait for 'session.done'" in twin.error(twin.hear().last)
        server.engine.held = False
        assert twin.is_over(twin.hear().last)


def test_who_has_spoken_our_own_protocol_stays_with_it(server: Running) -> None:
    with talking(server.url) as talk:
        talk.say("Hello.")
        talk.send("session.config")
        assert talk.error()["code"] == "invalid_value"
