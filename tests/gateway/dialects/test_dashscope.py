"""DashScope's tasks, as its SDK 2.0.2 for Python sends them."""

from __future__ import annotations

from typing import Any

import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.contracts import Mode
from tests.gateway.dialects.twin import Event, dialed
from tests.gateway.dialects.twins import DashScope
from tests.gateway.serving import Running


def kinds(events: list[Event]) -> list[str]:
    return [
        event["payload"]["output"]["type"]
        if event["header"]["event"] == "result-generated"
        else event["header"]["event"]
        for event in events
    ]


def test_a_task_as_the_sdk_sends_it(server: Running) -> None:
    with dialed(server, DashScope) as twin:
        twin.start(rate=1.5, seed=7, instruction="Whisper.", language_hints=["en"])
        twin.text("Hel")
        twin.text("lo.")
        twin.end()
        heard = twin.hear()
    (request,) = server.engine.requests
    assert (request.speed, request.seed, request.language) == (1.5, 7, "en")
    assert (request.mode, request.instruction) == (Mode.INSTRUCT, "Whisper.")
    assert server.engine.texts == ["Hello."]
    assert heard.audio == encode(server.engine.samples, AudioFormat.PCM)
    first, *between, last = kinds(heard.events)
    assert (first, last) == ("task-started", "task-finished")
    begin, *frames, end = between
    assert (begin, end) == ("sentence-begin", "sentence-end")
    assert set(frames) == {"sentence-synthesis"}
    assert {event["header"]["task_id"] for event in heard.events} == {"a"}
    assert heard.last["payload"]["usage"] == {"characters": 6}


def test_words_are_fixed_as_the_cloud_fixes_them(server: Running) -> None:
    fixes = {"pronunciation": [{"天气": "tian1 qi4"}], "replace": [{"今天": "金天"}]}
    with dialed(server, DashScope) as twin:
        twin.start(hot_fix=fixes, text_type="SSML")
        twin.text("<speak>今天")
        twin.text("天气</speak>")
        twin.end()
        twin.hear()
    (request,) = server.engine.requests
    assert request.lexicon == {"今天": "金天", "天气": "[t][iān][q][ì]"}
    assert request.text == "<speak>今天天气</speak>"


def test_the_default_of_the_sdk_is_mp3_at_22050(server: Running) -> None:
    with dialed(server, DashScope) as twin:
        twin.start(format="Default", sample_rate=0)
        twin.text("Hello.")
        twin.end()
        audio = decode(twin.hear().audio)
    assert audio.rate == 22_050
    assert audio.seconds == pytest.approx(1.6, abs=0.1)


def test_a_flush_is_heard_before_the_task_ends(server: Running) -> None:
    with dialed(server, DashScope) as twin:
        twin.start(format="wav")
        twin.text("One.")
        twin.act("continue-task", input={"flush": True})
        begun: list[Event] = []
        audio = b""
        while "sentence-end" not in kinds(begun):
            item = twin.hear_next()
            if isinstance(item, bytes):
                audio += item
            else:
                begun.append(item)
        assert server.engine.texts == ["One."]
        twin.text("Two.")
        twin.end()
        rest = twin.hear()
    assert server.engine.texts == ["One.", "Two."]
    assert "task-started" not in kinds(rest.events)
    assert rest.last["payload"]["usage"] == {"characters": 8}
    header = 44  # of the whole, once
    assert len(audio + rest.audio) == header + 2 * 2 * len(server.engine.samples)


def test_a_task_without_a_text(server: Running) -> None:
    with dialed(server, DashScope) as twin:
        twin.start()
        twin.end()
        heard = twin.hear()
        assert heard.last["header"]["event"] == "task-finished"
        assert heard.last["payload"]["usage"] == {"characters": 0}
    assert server.engine.requests == []


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"format": "aac"}, "no audio format 'aac'"),
        ({"format": "opus", "sample_rate": 44_100}, "can't be 44100 Hz"),
        ({"word_timestamp_enabled": True}, "no times of words"),
        ({"text_type": "XML"}, "text_type"),
        ({"hot_fix": {"pronunciation": [{"a": "b"}]}}, "pinyin is written"),
        ({"hot_fix": {"replace": "a"}}, "hot_fix"),
        ({"rate": 9}, "speed"),
        ({"voice": 5}, "payload.parameters.voice"),
    ],
)
def test_what_a_task_can_not_have(server: Running, parameters: dict[str, Any], told: str) -> None:
    with dialed(server, DashScope) as twin:
        twin.start(**parameters)
        header = twin.hear().last["header"]
        assert (header["event"], header["error_code"]) == ("task-failed", "InvalidParameter")
        assert header["task_id"] == "a"
        assert told in header["error_message"]
        twin.name = "b"
        assert not twin.error(twin.say().last)


def test_the_order_of_messages(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, DashScope) as twin:
        twin.text("Too early.")
        assert "follows 'run-task'" in twin.error(twin.hear().last)
        twin.start()
        twin.text("Hello.")
        twin.hear_audio()
        twin.name = "b"
        twin.start()
        heard = twin.hear()
        assert "one task at a time" in twin.error(heard.last)
        assert heard.last["header"]["task_id"] == "b"
        server.engine.held = False
        twin.name = "a"
        twin.end()
        assert twin.is_over(twin.hear().last)


def test_a_whole_text_is_interrupted_too(server: Running) -> None:
    """A language model writes faster than anybody speaks."""
    server.behave(held=True)
    with dialed(server, DashScope) as twin:
        twin.cancel()  # of a task that is over, which is no mistake
        twin.start()
        twin.text("A long story.")
        twin.end()
        twin.hear_audio()
        twin.cancel()
        heard = twin.hear()
        assert twin.is_over(heard.last)
        assert server.engine.made == 1
        twin.cancel()
        twin.name = "b"
        server.engine.held = False
        assert not twin.error(twin.say().last)
