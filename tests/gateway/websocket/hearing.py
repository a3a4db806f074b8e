"""What is heard of several contexts on one WebSocket."""

from __future__ import annotations

import json
from contextlib import suppress

from tests.gateway.dialects.twin import Heard
from tests.gateway.dialects.twins import Websocket
from tests.gateway.talking import Event, Talk

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
