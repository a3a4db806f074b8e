"""Several contexts on one WebSocket: whose is what, how many, and how a text is split."""

from __future__ import annotations

import time

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.gateway.connection.streams import MAX_MARKS, MAX_STREAMS
from cosyserve.settings import Settings
from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Websocket
from tests.gateway.serving import Running, serving
from tests.gateway.talking import talking
from tests.gateway.websocket.hearing import hear_all, hear_until, hear_until_silence, names
from tests.waiting import wait_until


def test_contexts_speak_at_the_same_time(server: Running) -> None:
    server.behave(held=True)
    with talking(server.url) as talk:
        for context in ("a", "b-2"):
            talk.start(context=context)
            talk.send("text", text=f"I am {context}.", context=context)
            talk.send("end", context=context)
        wait_until(lambda: server.engine.open_sessions == 2)
        server.engine.held = False
        audio, events = hear_all(talk, "a", "b-2")
    whole = encode(server.engine.samples, AudioFormat.PCM)
    assert audio == {"a": whole, "b-2": whole}
    assert sorted(server.engine.texts) == ["I am a.", "I am b-2."]
    for told in events.values():
        assert names(told) == ["started", "done"]
        assert len({event["request_id"] for event in told}) == 1


def test_without_a_context_nothing_is_named(server: Running) -> None:
    """Beside contexts, too."""
    server.behave(held=True)
    with talking(server.url) as talk:
        talk.start(context="a", audio="base64")
        talk.send("text", text="Named.", context="a")
        talk.start()
        talk.text("Plain.")
        talk.send("end")
        server.engine.held = False
        reply = talk.hear("done")
        assert reply.audio == encode(server.engine.samples, AudioFormat.PCM)
        plain = [event for event in reply.events if "context" not in event]
        assert names(plain) == ["started", "done"]
        talk.send("cancel", context="a")
        assert talk.hear("done").last["context"] == "a"


def test_a_flush_is_spoken_and_told_before_the_end(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(response_format="wav")
        twin.flush()  # of nothing: nothing is told
        twin.text("One.")
        twin.flush()
        twin.flush()
        first = hear_until(twin, "flushed")
        assert server.engine.texts == ["One."]
        twin.text(" Two.")
        twin.flush()
        twin.end()
        rest = twin.hear()
    assert server.engine.texts == ["One.", " Two."]
    assert names(first.events + rest.events) == ["started", "flushed", "flushed", "done"]
    assert all(event["context"] == "a" for event in first.events + rest.events)
    assert len(first.audio + rest.audio) == 44 + 2 * 2 * len(server.engine.samples)  # one header
    used = [event["usage"]["output_tokens"] for event in (first.last, rest.last)]
    assert used == [40, 80]  # so far
    assert first.last["request_id"].endswith(".1")
    assert rest.last["request_id"].endswith(".2")


@pytest.mark.parametrize("nothing", [" ", "!", "\N{GRINNING FACE}"])
def test_a_context_that_ends_when_all_was_spoken(server: Running, nothing: str) -> None:
    with dialed(server, Websocket) as twin:
        for finish in (twin.end, twin.cancel):
            twin.start()
            twin.text("One.")
            twin.flush()
            flushed = hear_until(twin, "flushed").last
            wait_until(lambda: not server.app.state.gate.inside)
            twin.text(nothing)
            finish()
            done = twin.hear().last
            assert (done["type"], done["finish_reason"]) == ("done", "stop")
            assert done["usage"] == flushed["usage"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("pieces", "spoken"),
    [
        (("$", None, "5."), "$5."),
        (("\ud83d", None, "\ude00", None, " Hi."), "\N{GRINNING FACE} Hi."),
        (("\N{GRINNING FACE}", "<", None, "b"), "\N{GRINNING FACE}<b"),
        (("<", None, "spe", "ak>Hi.</speak>"), "<speak>Hi.</speak>"),
        (("!", None, "<", "speak>Hi.</speak>"), "<speak>Hi.</speak>"),
        (("!", "<speak>Hi.</speak>"), "!<speak>Hi.</speak>"),
        (("-", None, *1000 * ("---",), None, "Hi."), MAX_MARKS * "-" + "Hi."),
    ],
    ids=["sign", "halves", "no SSML", "SSML", "SSML after a flush", "SSML after marks", "many"],
)
def test_marks_belong_to_the_text_behind_them(
    server: Running, pieces: tuple[str | None, ...], spoken: str, first: bool
) -> None:
    """None: a flush."""
    with dialed(server, Websocket) as twin:
        twin.start()
        for piece in pieces if first else ("One.", None, *pieces):
            if piece is None:
                twin.flush()
            else:
                twin.text(piece)
        twin.end()
        events = twin.hear().events
    assert names(events) == ["started", *([] if first else ["flushed"]), "done"]
    heard = [r.text for r in server.engine.requests if isinstance(r.text, str)]
    assert (heard or server.engine.texts)[-1] == spoken
    assert server.engine.sessions == (1 if first else 2)


@pytest.mark.parametrize("marks", ["", "(", "--- "])
def test_marks_are_characters_of_the_text(server: Running, marks: str) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(timestamps="word")
        for piece in ("One two. ", marks, "Three."):
            twin.text(piece)
            twin.flush()
        twin.end()
        done = twin.hear().last
    assert done["spoken"]["words"] == 3
    assert done["spoken"]["characters"] == len(f"One two. {marks}Three.")


def test_messages_of_no_context(server: Running) -> None:
    server.behave(held=True)  # else it may be over before the flush comes
    with dialed(server, Websocket) as twin:
        for send in (lambda: twin.text("a"), twin.flush, twin.end):
            twin.cancel()
            send()
            refused = twin.hear().last
            assert (refused["context"], refused["request_id"]) == ("a", None)
            assert refused["error"]["code"] == "out_of_order"
        twin.tell("start", speed=9)
        assert twin.hear().last["context"] == "a"
        twin.text("Of what was refused.")
        twin.start()
        twin.text("Hello.")
        twin.start()
        assert "one utterance at a time" in twin.error(twin.hear().last)
        twin.end()
        twin.flush()
        assert "after 'end'" in twin.error(twin.hear().last)
        server.engine.held = False
        assert twin.hear().last["finish_reason"] == "stop"
    assert server.engine.texts == ["Hello."]


def test_there_are_only_so_many(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        for number in range(MAX_STREAMS + 1):
            twin.name = str(number)
            twin.start()
        refused = twin.hear().last
        assert (refused["context"], refused["retry_after"]) == (str(MAX_STREAMS), 1)
        assert f"{MAX_STREAMS} contexts" in twin.error(refused)
        twin.name = "0"
        twin.cancel()
        twin.hear()
        twin.name = str(MAX_STREAMS)
        assert twin.say().last["finish_reason"] == "stop"


SENTENCES = "The first one is here, and whole. The second, however, is not yet"


@pytest.mark.parametrize(
    ("split", "spoken"),
    [
        (None, [SENTENCES]),
        ("none", [SENTENCES]),
        ("sentence", ["The first one is here, and whole.", " The second, however, is not yet"]),
        (
            "clause",
            ["The first one is here,", " and whole.", " The second,", " however, is not yet"],
        ),
    ],
)
def test_a_text_is_split_as_asked(server: Running, split: str | None, spoken: list[str]) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(split=split)
        for letter in SENTENCES:
            twin.text(letter)
        if split == "none":
            assert len(hear_until_silence(twin, 0.1)) == 1  # it has started
        elif split:
            twin.hear_audio()
        twin.end()
        done = twin.hear().last
        assert done["finish_reason"] == "stop"
        assert done["usage"]["output_tokens"] == 40 * len(spoken)
    asked = [r.text if isinstance(r.text, str) else None for r in server.engine.requests]
    assert [text for text in asked if text] + server.engine.texts[:1] * (split is None) == spoken


def test_who_keeps_it_alive_is_waited_for() -> None:
    seconds = 2.0
    with (
        serving(settings=Settings(max_idle_seconds=seconds)) as impatient,
        dialed(impatient, Websocket) as early,  # has no context yet
        dialed(impatient, Websocket) as slow,  # more of its text is to come
    ):
        slow.start()
        slow.text("One ")
        until = time.monotonic() + 1.2 * seconds
        while time.monotonic() < until:
            for twin in (early, slow):
                twin.send({"type": "keep_alive"})
            time.sleep(0.1 * seconds)
        slow.cancel()
        assert slow.hear().last["finish_reason"] == "cancelled"
        assert early.say().last["finish_reason"] == "stop"
        early.start()
        assert "no text came" in early.error(early.hear().last)
