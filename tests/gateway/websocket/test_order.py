"""Whatever a client sends in whatever order, what it hears is in order."""

from __future__ import annotations

import json
import random

from tests.gateway.serving import Running
from tests.gateway.talking import Event, Talk, talking


class Listener:
    """Knows what may come next."""

    def __init__(self) -> None:
        self.speaking = ""  # the id of an utterance that has started
        self.over: list[str] = []

    def take(self, message: str | bytes) -> str:
        """Returns what an error says."""
        if isinstance(message, bytes):
            assert self.speaking
            return ""
        event: Event = json.loads(message)
        number = event["request_id"]
        if event["type"] == "started":
            assert not self.speaking
            self.speaking = number
        elif number is not None:
            assert number == (self.speaking or number)
            assert (
                event["type"] == "error" or self.speaking or event["finish_reason"] == "cancelled"
            )
            self.over.append(number)
            self.speaking = ""
        return event["error"]["message"] if event["type"] == "error" else ""

    def take_until_nobody_speaks(self, talk: Talk) -> None:
        """What is sent is refused in its order: a type nobody knows, then a voice nobody has, which
        is looked for as soon as no utterance is in its way."""
        talk.send("that is all")
        while "that is all" not in self.take(talk.socket.recv(timeout=20)):
            pass
        talk.start(voice="nobody at all")
        while "nobody at all" not in (refusal := self.take(talk.socket.recv(timeout=20))):
            if "one utterance at a time" in refusal:
                talk.start(voice="nobody at all")


def send_something(talk: Talk, chance: random.Random) -> None:
    match chance.randrange(12):
        case 0 | 1 | 2:
            talk.start(voice=chance.choice(["default", "default", "nobody"]))
        case 3 | 4 | 5 | 6:
            talk.text(chance.choice(["Hello. ", "", " ", "x" * 2000]))
        case 7 | 8:
            talk.send("end")
        case 9 | 10:
            talk.send("cancel")
        case 11:
            talk.socket.send(chance.choice(["{", b"\0", '{"type": "start"}']))


def test_any_order(server: Running) -> None:
    server.behave(chunks=3, chunk_tokens=2, first_delay=0.001, delay=0.001)
    chance = random.Random(1)
    for _ in range(15):
        listener = Listener()
        with talking(server.url, additional_headers={"x-request-id": "r"}) as talk:
            for _ in range(chance.randrange(80)):
                send_something(talk, chance)
                try:
                    while chance.random() < 0.5:
                        listener.take(talk.socket.recv(timeout=chance.random() * 0.004))
                except TimeoutError:
                    pass
            talk.send("cancel")
            listener.take_until_nobody_speaks(talk)
            assert not listener.speaking
            assert listener.over == [f"r.{number + 1}" for number in range(len(listener.over))]
            assert talk.say().last["request_id"] == f"r.{len(listener.over) + 1}"
    server.wait_until_idle()
