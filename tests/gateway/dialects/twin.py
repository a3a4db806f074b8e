"""A client of a service that speaks text in pieces: what all of them can do, and be asked."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.gateway.serving import Running
from tests.waiting import PATIENCE

Event = dict[str, Any]


@dataclass
class Heard:
    audio: bytes = b""
    events: list[Event] = field(default_factory=list)  # those without audio

    @property
    def last(self) -> Event:
        return self.events[-1]


class Twin(ABC):
    """One text at a time, in the messages of a service."""

    path: str
    key_header: tuple[str, str]  # with KEY for the key

    def __init__(self, socket: ClientConnection, name: str = "a") -> None:
        self.socket = socket
        self.name = name

    def send(self, message: Event) -> None:
        self.socket.send(json.dumps(message))

    def greet(self) -> None:  # noqa: B027 - most have nothing to say
        """Whatever comes before any text."""

    @abstractmethod
    def start(self, voice: str = "default") -> None: ...

    @abstractmethod
    def text(self, piece: str) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """What a client does when it is interrupted."""

    def flush(self) -> None:
        self.send({"type": "Flush", "context_id": self.name, "flush": True})

    @abstractmethod
    def is_over(self, event: Event) -> bool: ...

    @abstractmethod
    def error(self, event: Event) -> str:
        """What is wrong; "" if nothing is."""

    def audio(self, event: Event) -> bytes:
        """The audio in an event."""
        return b""

    def hear_next(self, timeout: float = PATIENCE) -> Event | bytes:
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, bytes):
            return message
        event: Event = json.loads(message)
        return self.audio(event) or event

    def hear(self) -> Heard:
        """All until the text is spoken, or an error."""
        heard = Heard()
        while True:
            item = self.hear_next()
            if isinstance(item, bytes):
                heard.audio += item
                continue
            heard.events.append(item)
            if self.is_over(item) or self.error(item):
                return heard

    def hear_audio(self) -> bytes:
        """The first audio that comes."""
        while not isinstance(item := self.hear_next(), bytes):
            assert not self.error(item), item
        return item

    def say(self, *pieces: str, **fields: Any) -> Heard:
        self.start(**fields)
        for piece in pieces or ("Hello.",):
            self.text(piece)
        self.end()
        return self.hear()


@contextmanager
def dialed(
    server: Running, kind: type[Twin], path: str | None = None, **options: Any
) -> Iterator[Any]:
    """A client of this kind, connected."""
    address = server.url.replace("http", "ws", 1) + (path or kind.path)
    with connect(address, compression=None, close_timeout=2, **options) as socket:
        twin = kind(socket)
        twin.greet()
        yield twin
