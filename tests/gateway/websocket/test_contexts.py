"""Several contexts on one WebSocket: whose is what, and what was spoken of each."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosyserve.audio import AudioFormat, encode
from cosyserve.gateway.connection.streams import MAX_STREAMS
from cosyserve.settings import Settings
from tests.gateway.dialects.twins import Heard, Websocket, dialed
from tests.gateway.serving import Running, serving
from tests.gateway.talking import Event, Talk, talking
from tests.waiting import wait_until

OVER = ("done", "error")


def names(events: list[Event]) -> list[str]:
    return [event["type"] for event in events if event["type"] != "audio"]


def hear_all(talk: Talk, *contexts: str) -> tuple[dict[str, bytes], dict[str, list[Event]]]:
    """Binary audio and events by context, until all of these are over."""
    audio = dict.fromkeys(contexts, b"")
    events: dict[str, list[Event]] = {context: [] for context in contexts}
    while not all(told and told[-1]["type"] in OVER for told in events.values()):
        message = talk.socket.recv(timeout=20)
        if isinstance(message, bytes):
            length, rest = message[0], message[1:]
            audio[rest[:length].decode()] += rest[length:]
        else:
            event = json.loads(message)
            events[event.pop("context")].append(event)
    return audio, events


def hear_until(twin: Websocket, kind: str) -> Heard:
    heard = Heard()
    while not heard.events or heard.last["type"] != kind:
        item = twin.hear_next()
        if isinstance(item, bytes):
            heard.audio += item
        else:
            heard.events.append(item)
    return heard


def hear_until_silence(twin: Websocket, seconds: float) -> list[Event | bytes]:
    heard = []
    with suppress(TimeoutError):
        while True:
            heard.append(twin.hear_next(timeout=seconds))
    return heard


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


def test_a_context_that_ends_when_all_was_spoken(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        for finish in (twin.end, twin.cancel):
            twin.start()
            twin.text("One.")
            twin.flush()
            flushed = hear_until(twin, "flushed").last
            wait_until(lambda: not server.app.state.gate.inside)
            twin.text(" ")  # nothing to say
            finish()
            done = twin.hear().last
            assert (done["type"], done["finish_reason"]) == ("done", "stop")
            assert done["usage"] == flushed["usage"]


def test_what_was_spoken_counts_from_the_start_of_the_context(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(timestamps="word")
        for piece in ("One two.", "  "):
            twin.text(piece)
        twin.flush()
        twin.text(" \n")
        twin.text("Three.")
        twin.end()
        events = twin.hear().events
    flushed, done = (event for event in events if "spoken" in event)
    assert flushed["spoken"] == {"seconds": 1.6, "words": 2, "characters": len("One two.")}
    text = "One two.   \nThree."
    assert done["spoken"] == {"seconds": 3.2, "words": 3, "characters": len(text)}
    told = [event for event in events if event["type"] == "words"]
    assert list(chain.from_iterable(event["words"] for event in told)) == ["One", "two.", "Three."]
    assert told[-1]["start"][-1] >= 1.6


def test_an_interrupted_context_says_what_was_heard_of_it(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(timestamps="word")
        twin.text("One two. ")
        twin.flush()
        hear_until(twin, "flushed")
        server.behave(held=True)
        twin.text("Three four.")
        twin.end()
        twin.hear_audio()
        twin.cancel()
        done = twin.hear().last
        assert done["finish_reason"] == "cancelled"
        assert 1.6 <= done["spoken"]["seconds"] < 3.2
        assert done["spoken"]["words"] == 2
        assert done["spoken"]["characters"] == len("One two. ")
        assert server.engine.open_sessions == 0
        twin.start(timestamps="word")
        twin.cancel()  # before there is a word
        assert twin.hear().last["spoken"] == {"seconds": 0.0, "words": 0, "characters": 0}


def test_an_interruption_is_of_one_context(server: Running) -> None:
    server.behave(held=True)
    with talking(server.url) as talk:
        for context in ("a", "b"):
            talk.start(context=context)
            talk.send("text", text="Hello.", context=context)
            talk.send("end", context=context)
        wait_until(lambda: server.engine.open_sessions == 2)
        talk.send("cancel", context="a")
        _, events = hear_all_of(talk, "a")
        assert events["a"][-1]["finish_reason"] == "cancelled"
        assert server.engine.open_sessions == 1
        server.engine.held = False
        _, events = hear_all_of(talk, "b")
        assert events["b"][-1]["finish_reason"] == "stop"


def hear_all_of(talk: Talk, context: str) -> tuple[int, dict[str, list[Event]]]:
    """The events of a context up to its end, and the number of others' that came between."""
    events: dict[str, list[Event]] = {context: []}
    others = 0
    while not events[context] or events[context][-1]["type"] not in OVER:
        message = talk.socket.recv(timeout=20)
        event = {} if isinstance(message, bytes) else json.loads(message)
        if event.get("context") == context:
            events[context].append(event)
        else:
            others += 1
    return others, events


def test_a_context_that_fails_is_over_and_may_begin_anew(server: Running) -> None:
    with dialed(server, Websocket) as twin:
        twin.start(voice="nobody")
        twin.text("Lost.")
        heard = twin.hear().last
        assert (heard["context"], heard["error"]["code"]) == ("a", "voice_not_found")
        assert heard["request_id"].endswith(".1")
        twin.text("Lost, too.")
        twin.flush()
        twin.end()
        assert twin.say("Now.").last["finish_reason"] == "stop"
        twin.start()
        twin.end()
        assert twin.error(twin.hear().last) == "the text holds nothing to say"
    assert server.engine.texts == ["Now."]


def test_messages_of_no_context(server: Running) -> None:
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


Act = tuple[str, str, bool]
acts = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", ""]),
        st.sampled_from(
            ["start", "base64", "nobody", "text", "blank", "flush", "end", "cancel", "keep_alive"]
        ),
        st.booleans(),
    ),
    max_size=40,
)


class Order:
    """What may come next in each context, and how many starts have found their end."""

    def __init__(self) -> None:
        self.speaking: dict[str, bool] = {}  # contexts that have started; whether in base64
        self.ended: Counter[str] = Counter()

    def take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            names = [c for c in self.speaking if c and message[1:].startswith(c.encode())]
            assert names or "" in self.speaking
            return
        event: Event = json.loads(message)
        context = event.get("context", "")
        match event["type"]:
            case "started":
                assert context not in self.speaking
                self.speaking[context] = True
            case "audio" | "flushed" | "words":
                assert context in self.speaking
            case "error" if event["request_id"] is None:
                if "one utterance at a time" in event["error"]["message"]:
                    self.ended[context] += 1
            case "done" | "error":
                started = self.speaking.pop(context, False)
                failed = event["type"] == "error" or event["finish_reason"] == "cancelled"
                assert started or failed
                self.ended[context] += 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=acts, leaves=st.booleans(), finish=st.sampled_from(["stop", "length"]))
def test_any_order(server: Running, conversation: list[Act], leaves: bool, finish: str) -> None:
    server.behave(chunks=3, chunk_tokens=2, first_delay=0.0005, delay=0.0005, finish=finish)
    order, starts = Order(), Counter[str]()
    with talking(server.url) as talk:
        for context, act, listens in conversation:
            named = {"context": context} if context else {}
            match act:
                case "start" | "base64" | "nobody":
                    voice = "nobody" if act == "nobody" else "default"
                    audio = "base64" if act == "base64" else "binary"
                    talk.start(voice=voice, audio=audio, **named)
                    starts[context] += 1
                case "text" | "blank":
                    talk.send("text", text="Hello. " if act == "text" else " ", **named)
                case "keep_alive":
                    talk.send(act)
                case _:
                    talk.send(act, **named)
            if listens:
                with suppress(TimeoutError):
                    order.take(talk.socket.recv(timeout=0.002))
        if not leaves:
            for context in starts:
                talk.send("cancel", **({"context": context} if context else {}))
            while order.ended != starts:
                order.take(talk.socket.recv(timeout=20))
            assert not order.speaking
            server.engine.finish = "stop"
            assert talk.say("And now?").events
            wait_until(lambda: "And now?" in server.engine.texts)
    server.wait_until_idle()
    wait_until(lambda: not server.app.state.connections.count)
