"""A client of the Wyoming port: the protocol's own package, with less to write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event

from cosyserve.gateway.transport.listening import listen
from cosyserve.gateway.wyoming.server import wyoming_server
from cosyserve.settings import Settings
from tests.gateway.serving import Running, opened, serving
from tests.gateway.sine_engine import SineEngine
from tests.waiting import wait_until


@dataclass
class Door:
    server: Running
    port: int

    def talk(self, conversation: Callable[[AsyncTcpClient], Awaitable[None]]) -> None:
        async def run() -> None:
            async with asyncio.timeout(30), AsyncTcpClient("127.0.0.1", self.port) as client:
                await conversation(client)

        asyncio.run(run())

    def wait_until_gone(self) -> None:
        self.server.wait_until_idle()
        wait_until(lambda: not self.server.app.state.connections.count)


@contextmanager
def open_door(**settings: Any) -> Iterator[Door]:
    with (
        serving(SineEngine(), Settings(**settings)) as server,
        listen("127.0.0.1", 0, 10) as listener,
        opened(server, wyoming_server(server.app.state.context, listener)),
    ):
        yield Door(server, listener.getsockname()[1])


@dataclass
class Answer:
    audio: bytes = b""
    events: list[Event] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def error(self) -> Error:
        (error,) = (Error.from_event(e) for e in self.events if Error.is_type(e.type))
        return error


async def hear(client: AsyncTcpClient, until: Callable[[str], bool] = AudioStop.is_type) -> Answer:
    """All that comes until such an event, or until the server hangs up."""
    answer = Answer()
    while event := await client.read_event():
        if AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.rate, chunk.width, chunk.channels) == (24_000, 2, 1)
            answer.audio += chunk.audio
        else:
            answer.events.append(event)
        if until(event.type):
            break
    return answer
