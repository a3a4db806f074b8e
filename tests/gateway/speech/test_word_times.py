"""Times of words, in every protocol that has a place for them."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from typing import Any

import pytest

from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Cartesia, ElevenLabs
from tests.gateway.serving import Running
from tests.gateway.talking import talking

TEXT = "Hello there, 你好。 The end."
WORDS = ["Hello", "there,", "你", "好。", "The", "end."]
SECONDS = 1.6  # of the engine's hum


def check(words: list[str], start: list[float], end: list[float], text: str = TEXT) -> None:
    assert words == WORDS if text == TEXT else text.split()
    assert len(start) == len(end) == len(words)
    assert all(0 <= begin <= stop <= SECONDS for begin, stop in zip(start, end, strict=True))
    assert all(before <= after for before, after in pairwise(start))


def joined(events: list[dict[str, Any]]) -> tuple[list[str], list[float], list[float]]:
    words, start, end = (
        list(chain.from_iterable(event[name] for event in events))
        for name in ("words", "start", "end")
    )
    return words, start, end


def sse(server: Running, **fields: Any) -> list[dict[str, Any]]:
    answer = server.say(stream_format="sse", response_format="pcm", **fields)
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line]


def test_over_sse_words_follow_their_audio(server: Running) -> None:
    plain = sse(server, input=TEXT)
    events = sse(server, input=TEXT, timestamps="word")
    told = [event for event in events if event["type"] == "speech.audio.words"]
    check(*joined(told))
    assert [event for event in events if event not in told] == plain  # all else is as without
    assert events[0]["type"] == "speech.audio.delta"
    assert events[-1]["type"] == "speech.audio.done"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"timestamps": "word"}, "stream_format"),
        ({"timestamps": "letter", "stream_format": "sse"}, "word"),
        ({"word_timestamps": True}, "timestamps"),
    ],
)
def test_audio_alone_has_no_times(server: Running, fields: dict[str, Any], told: str) -> None:
    answer = server.say(**fields)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


def test_a_batch_has_none(server: Running) -> None:
    items = [{"input": "Hello.", "timestamps": "word"}]
    answer = server.http.post("/v1/audio/speech/batch", json={"items": items}).json()
    assert answer["results"][0]["error"]["param"] == "timestamps"


def test_ssml_is_told_without_its_tags(server: Running) -> None:
    events = sse(server, input="<speak>One <sub alias='two'>2</sub>.</speak>", timestamps="word")
    words, _, _ = joined([event for event in events if event["type"] == "speech.audio.words"])
    assert words == ["One", "two."]


def test_over_a_websocket_in_pieces(server: Running) -> None:
    with talking(server.url) as talk:
        reply = talk.say(*TEXT, timestamps="word")
        without = talk.say(*TEXT)
    told = [event for event in reply.events if event["type"] == "words"]
    check(*joined(told))
    assert {event["request_id"] for event in told} == {reply.last["request_id"]}
    assert reply.audio == without.audio
    assert reply.last["spoken"] == {"seconds": SECONDS, "words": 6, "characters": len(TEXT)}
    assert [event["type"] for event in without.events] == ["started", "done"]
    assert "spoken" not in without.last


def test_a_cancelled_speech_says_how_much_was_heard(server: Running) -> None:
    server.behave(chunk_tokens=50, held=True)
    with talking(server.url) as talk:
        talk.start(timestamps="word")
        talk.text(TEXT)
        talk.send("end")
        told = talk.hear("words").last
        talk.send("cancel")
        done = talk.hear().last
    assert done["finish_reason"] == "cancelled"
    heard = [
        word
        for word, end in zip(told["words"], told["end"], strict=True)
        if end <= done["spoken"]["seconds"]
    ]
    assert done["spoken"]["seconds"] < 2.0  # the first chunk, which was not played yet
    assert done["spoken"]["words"] == len(heard)
    assert TEXT[: done["spoken"]["characters"]].split() == " ".join(heard).split()


def test_a_speech_that_ends_at_a_length_tells_no_more_than_it_said(server: Running) -> None:
    events = sse(server, input=" ".join(["word"] * 50), timestamps="word", max_new_tokens=10)
    words, _, end = joined([event for event in events if event["type"] == "speech.audio.words"])
    assert len(words) < 50
    assert all(time <= 0.4 for time in end)


def test_cartesia_has_its_own_form(server: Running) -> None:
    with dialed(server, Cartesia) as twin:
        twin.timestamps = True
        heard = twin.say(TEXT)
        told = [e["word_timestamps"] for e in heard.events if e["type"] == "timestamps"]
        check(*joined(told))
        twin.piece("One. ", flush=True)
        twin.piece("Two.", **{"continue": False})
        times = [e["word_timestamps"] for e in twin.hear().events if e["type"] == "timestamps"]
    words, start, _ = joined(times)
    assert words == ["One.", "Two."]
    assert start[0] <= SECONDS <= start[1]  # counted from the start of the context


def test_elevenlabs_aligns_characters(server: Running) -> None:
    with dialed(server, ElevenLabs) as twin:
        heard = twin.say("Hello there. ", "The end.")
    told = [e["alignment"] for e in heard.events if e.get("alignment")]
    assert "".join(char for a in told for char in a["chars"]) == "Hello there. The end. "
    seconds = 0.0
    for alignment in told:
        starts, durations = alignment["charStartTimesMs"], alignment["charDurationsMs"]
        assert len(starts) == len(durations) == len(alignment["chars"])
        for (start, following), duration in zip(pairwise(starts), durations, strict=False):
            assert start + duration == following
        seconds += (starts[-1] + durations[-1]) / 1000  # as its clients add them up
    assert seconds <= SECONDS
    path = f"{ElevenLabs.path}&sync_alignment=true"
    with dialed(server, ElevenLabs, path) as twin:
        twin.text("One. ")
        twin.tell(text="", flush=True)
        heard = twin.say("Two.")
    starts = [
        s for e in heard.events if e.get("alignment") for s in e["alignment"]["charStartTimesMs"]
    ]
    assert starts == sorted(starts)  # as LiveKit reads them
    assert starts[-1] > 1000 * SECONDS
    path = f"{ElevenLabs.path}&sync_alignment=false"
    with dialed(server, ElevenLabs, path) as twin:
        assert not any(e.get("alignment") for e in twin.say("Hello.").events)
