"""Deepgram's commands, as its SDK and the plugins of LiveKit and Pipecat send them."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from cosyserve.audio import AudioFormat, encode
from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Deepgram
from tests.gateway.serving import Running
from tests.gateway.talking import close_code


def test_every_flush_is_answered_once(server: Running) -> None:
    with dialed(server, Deepgram) as twin:
        for number in range(3):
            heard = twin.say(f"Text {number}.")
            assert heard.events == [{"type": "Flushed", "sequence_id": number}]
        twin.end()  # of nothing
        assert twin.hear().events == [{"type": "Flushed", "sequence_id": 3}]
    assert server.engine.texts == [f"Text {number}." for number in range(3)]


def test_texts_that_wait_are_spoken_in_order(server: Running) -> None:
    with dialed(server, Deepgram) as twin:
        for number in range(3):
            twin.text(f"Text {number}.")
            twin.end()
        audio = b"".join(twin.hear().audio for _ in range(3))
    assert audio == 3 * encode(server.engine.samples, AudioFormat.PCM)
    assert server.engine.most_open == 1


def test_a_flush_of_what_is_being_spoken(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Deepgram) as twin:
        twin.text("Hello.")
        twin.end()
        twin.hear_audio()
        twin.end()
        warning = twin.hear_next()
        assert isinstance(warning, dict)
        assert (warning["type"], warning["code"]) == ("Warning", "NOTHING_TO_FLUSH")
        server.engine.held = False
        assert twin.hear().events == [{"type": "Flushed", "sequence_id": 0}]


def test_what_waits_is_cleared_too(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, Deepgram) as twin:
        twin.text("Hello.")
        twin.end()
        twin.hear_audio()
        twin.text("Never said.")
        twin.end()
        twin.cancel()
        twin.text("Said.")
        twin.end()
        heard = twin.hear()
        assert (heard.last["type"], len(heard.audio)) == ("Cleared", 0)
        server.engine.held = False
        assert twin.hear().last["type"] == "Flushed"
        twin.cancel()  # of nothing
        assert twin.hear().last["type"] == "Cleared"
    assert server.engine.texts[-1] == "Said."
    assert "Never said." not in server.engine.texts


def test_marks_go_with_what_was_interrupted(server: Running) -> None:
    with dialed(server, Deepgram) as twin:
        twin.text("(")
        twin.flush()
        assert twin.hear().last["type"] == "Flushed"
        twin.text("(\ud83d")
        twin.cancel()
        assert twin.hear().last["type"] == "Cleared"
        assert twin.say("\ude00Hello.").audio
    assert server.engine.texts == ["Hello."]


def test_close_says_the_rest(server: Running) -> None:
    with dialed(server, Deepgram) as twin:
        twin.text("Hello.")
        twin.send({"type": "Close"})
        twin.text("Too late.")
        assert twin.hear().audio == encode(server.engine.samples, AudioFormat.PCM)
        assert close_code(twin.socket) == 1000
    assert server.engine.texts == ["Hello."]
    with dialed(server, Deepgram) as twin:
        twin.send({"type": "Close"})
        assert close_code(twin.socket) == 1000


@pytest.mark.parametrize(
    ("query", "ours", "rate"),
    [
        ("encoding=mulaw&sample_rate=8000", AudioFormat.MULAW, 8000),
        ("encoding=alaw", AudioFormat.ALAW, 8000),
        ("sample_rate=48000&speed=1.2", AudioFormat.PCM, 48_000),
    ],
)
def test_queries(server: Running, query: str, ours: AudioFormat, rate: int) -> None:
    with dialed(server, Deepgram, f"/v1/speak?{query}") as twin:
        assert twin.say().audio == encode(server.engine.samples, ours, out_rate=rate)


@pytest.mark.parametrize("query", ["encoding=mp3", "sample_rate=x", "speed=nan", "model="])
def test_queries_that_are_refused(server: Running, query: str) -> None:
    with pytest.raises(InvalidStatus) as refused, dialed(server, Deepgram, f"/v1/speak?{query}"):
        pass
    assert refused.value.response.status_code == 400
