"""A client of the Realtime API whose every event is checked against OpenAI's package."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.sync.client import ClientConnection, connect

from tests.gateway.serving import Running
from tests.waiting import wait_until

Event = dict[str, Any]
FORM: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def message(text: str, role: str = "user", kind: str = "input_text") -> Event:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class Talk:
    def __init__(self, connection: ClientConnection) -> None:
        self.socket = connection

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def next(self) -> Event:
        text = self.socket.recv(timeout=20)
        assert FORM.validate_json(text).type  # as OpenAI's package describes it
        event: Event = json.loads(text)
        return event

    def hear(self, kind: str) -> list[Event]:
        """All events up to the first of this kind."""
        events = [self.next()]
        while events[-1]["type"] != kind:
            assert events[-1]["type"] != "error", events[-1]
            events.append(self.next())
        return events

    def say(self, text: str, **fields: Any) -> list[Event]:
        self.send("response.create", response={"input": [message(text)], **fields})
        return self.hear("response.done")

    def error(self) -> Event:
        event = self.next()
        assert event["type"] == "error", event
        error: Event = event["error"]
        return error


@contextmanager
def talking(server: Running, query: str = "?model=gpt-realtime", **options: Any) -> Iterator[Talk]:
    address = server.url.replace("http", "ws", 1) + "/v1/realtime" + query
    with connect(address, compression=None, close_timeout=2, **options) as connection:
        talk = Talk(connection)
        assert talk.next()["type"] == "session.created"
        yield talk


def audio(events: list[Event]) -> bytes:
    deltas = (e["delta"] for e in events if e["type"] == "response.output_audio.delta")
    return b"".join(base64.b64decode(delta) for delta in deltas)


def wait_until_gone(server: Running) -> None:
    server.wait_until_idle()
    wait_until(lambda: not server.app.state.connections.count)
