"""Messages that are none, of another version or cut off, end a worker's life and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cosyserve.contracts import AudioChunk, EngineStats, Recording
from cosyserve.engine.workers import client
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.messages import (
    LENGTH,
    Chunk,
    Embedded,
    EmbedRequest,
    Failed,
    FromWorker,
    Stats,
    ToWorker,
    frame,
    from_worker,
    to_worker,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import WorkerError
from tests.engine.mocks import VOICE

SAMPLES = np.zeros(3, np.float32)
SOUND: list[ToWorker | FromWorker] = [
    EmbedRequest(1, Recording(SAMPLES, 24_000, "text")),
    Chunk(2, AudioChunk(SAMPLES, 0, 0.0, 3)),
    Embedded(3, VOICE),
    Failed(4, "InputError", "why"),
    Stats(EngineStats(True, 0, 0)),
]
bodies = st.sampled_from([frame(message)[LENGTH.size :] for message in SOUND])


@settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
@given(bodies, st.integers(0, 1000), st.integers(0, 4), st.binary(max_size=4))
def test_any_bytes_are_a_message_or_an_error_of_ours(
    body: bytes, place: int, length: int, instead: bytes
) -> None:
    begin = place % len(body)
    torn = body[:begin] + instead + body[begin + length :]
    for decoder in (to_worker, from_worker):
        with suppress(WorkerError):
            decoder.decode(torn)


class Babbler(WorkerEngine):
    name = "babbler"

    def __init__(self, said: bytes) -> None:
        super().__init__(WorkerOptions("test"))
        self.said = said

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        reader = asyncio.StreamReader()
        reader.feed_data(self.said)
        yield reader, Mock()


@pytest.mark.parametrize("body", [b"", b"nonsense", msgspec.msgpack.encode({"type": "Later"})])
def test_a_worker_that_nobody_understands_has_another_life(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.0, 0.0))
    worker = Babbler(LENGTH.pack(len(body)) + body)

    async def start() -> None:
        async with asyncio.timeout(10):
            await worker.start()

    with pytest.raises(WorkerError, match="dies at every start"):
        asyncio.run(start())
    assert worker.stats().restarts == 2
