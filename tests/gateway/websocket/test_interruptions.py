"""What was spoken of a context, when it is interrupted, fails or has ended."""

from __future__ import annotations

from itertools import chain

from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import Websocket
from tests.gateway.serving import Running
from tests.gateway.talking import talking
from tests.gateway.websocket.hearing import hear_all_of, hear_until
from tests.waiting import wait_until


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
