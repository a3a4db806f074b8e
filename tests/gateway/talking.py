"""A client of the WebSocket: the real one of `websockets`, with less to write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.waiting import PATIENCE

STREAM = "/v1/audio/speech/stream"
OVER = ("done", "error")
Event = dict[str, Any]


@dataclass
class Reply:
    audio: bytes = b""
    frames: list[int] = field(default_factory=list)  # their lengths
    events: list[Event] = field(default_factory=list)

    @property
    def last(self) -> Event:
        return self.events[-1]


class Talk:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def start(self, **fields: Any) -> None:
        self.send("start", **{"model": "tts-1", "response_format": "pcm", **fields})

    def text(self, *pieces: str) -> None:
        for piece in pieces:
            self.send("text", text=piece)

    def hear(self, *until: str) -> Reply:
        """All that comes until one of these events; `done` or `error` if none is named."""
        reply = Reply()
        while True:
            message = self.socket.recv(timeout=20)
            if isinstance(message, bytes):
                reply.audio += message
                reply.frames.append(len(message))
                continue
            reply.events.append(json.loads(message))
            if reply.last["type"] in (until or OVER):
                return reply

    def say(self, *pieces: str, **fields: Any) -> Reply:
        self.start(**fields)
        self.text(*(pieces or ("Hello.",)))
        self.send("end")
        return self.hear()

    def error(self) -> Event:
        """The error object that comes next."""
        reply = self.hear()
        assert reply.last["type"] == "error", reply.last
        error: Event = reply.last["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


def utf16_pieces(text: str, size: int) -> list[str]:
    """The text as JavaScript's `slice` cuts it."""
    data = text.encode("utf-16-le")
    cut = [data[at : at + 2 * size] for at in range(0, len(data), 2 * size)]
    return [piece.decode("utf-16-le", "surrogatepass") for piece in cut]


@contextmanager
def talking(url: str, **options: Any) -> Iterator[Talk]:
    address = url.replace("http", "ws", 1) + STREAM
    with connect(address, compression=None, close_timeout=2, **options) as socket:
        yield Talk(socket)


def close_code(socket: ClientConnection) -> int:
    """The code with which the server closed the connection."""
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=PATIENCE)
    assert closed.value.rcvd
    return closed.value.rcvd.code
