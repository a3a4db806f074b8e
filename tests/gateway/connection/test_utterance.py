"""An utterance that ends in other ways than by its last word."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat
from cosyserve.gateway.app import create_app
from cosyserve.gateway.connection.events import ServerEvent
from cosyserve.gateway.connection.utterance import ConnectionUtterance
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.telemetry.record import Record
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.sine_engine import SineEngine


@pytest.mark.parametrize(
    ("closed", "status", "abort"), [(False, 499, "client_left"), (True, 503, "shutting_down")]
)
def test_who_cancelled_it(tmp_path: Path, closed: bool, status: int, abort: str) -> None:
    engine, record = SineEngine(held=True), Record("r", "WEBSOCKET", "/")

    async def run() -> None:
        app = create_app(engine, open_store(str(tmp_path)), Limits.of(Settings()))
        context, heard = app.state.context, asyncio.Event()

        async def send(item: ServerEvent | bytes) -> None:
            if isinstance(item, bytes):
                heard.set()

        fields = SpeechFields(response_format=AudioFormat.PCM)
        task = asyncio.create_task(
            ConnectionUtterance(context, fields, "Hello.", record, None).run(send)
        )
        await heard.wait()
        if closed:
            context.gate.close()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert (record.status, record.abort) == (status, abort)
    assert engine.open_sessions == 0
