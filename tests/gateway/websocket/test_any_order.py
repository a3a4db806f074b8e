"""Messages of several contexts in any order: each gets its own, and nothing is left."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.serving import Running
from tests.gateway.talking import Event, talking
from tests.waiting import wait_until

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
