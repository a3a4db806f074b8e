"""The order of a response's events, whenever it is stopped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket

from cosyserve.gateway.app import create_app
from cosyserve.gateway.connection.events import DoneEvent, StartedEvent
from cosyserve.gateway.connection.utterance import NO_USAGE
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.realtime.connection import RealtimeConnection
from cosyserve.gateway.realtime.response import RealtimeResponse
from cosyserve.gateway.realtime.session import RealtimeSession
from cosyserve.gateway.telemetry.record import Record
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.sine_engine import SineEngine

STARTED = StartedEvent(request_id="r", content_type="audio/pcm", sample_rate=24_000)
CANCELLED = DoneEvent(request_id="r", finish_reason="cancelled", usage=NO_USAGE)


class SlowSocket:
    """Takes some frames at once, and waits before the next until it is let go on."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.waiting, self.go_on = asyncio.Event(), asyncio.Event()
        self.kinds: list[str] = []

    async def send(self, data: str) -> None:
        if len(self.kinds) == self._at_once:
            self.waiting.set()
            await self.go_on.wait()
        self.kinds.append(json.loads(data)["type"])


@pytest.mark.parametrize("at_once", range(5))
def test_a_response_that_is_stopped_while_it_is_announced(tmp_path: Path, at_once: int) -> None:
    async def told(slow: int) -> list[str]:
        app = create_app(SineEngine(), open_store(str(tmp_path)), Limits.of(Settings()))
        scope: dict[str, Any] = {"type": "websocket", "state": {"record": Record("r", "GET", "/")}}
        scope |= {"query_string": b"", "headers": []}
        connection = RealtimeConnection(WebSocket(scope, Any, Any), app.state.context)
        connection._socket = socket = SlowSocket(slow)  # type: ignore[assignment]
        connection._response = RealtimeResponse(
            RealtimeSession("sine"), "Hello.", "conv_1", None, None
        )
        sending = asyncio.create_task(connection.send(STARTED))
        await asyncio.wait(
            [sending, waiting := asyncio.create_task(socket.waiting.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        waiting.cancel()
        sending.cancel()
        await asyncio.wait([sending])
        socket.go_on.set()
        await connection.send(CANCELLED)
        return socket.kinds

    never = 100
    assert asyncio.run(told(at_once)) == (whole := asyncio.run(told(never)))
    assert whole[0] == "response.created"
    assert whole[-1] == "response.done"
    assert len(set(whole)) == len(whole) == 11
