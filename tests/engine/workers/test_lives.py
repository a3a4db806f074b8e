"""A worker that is lost in whatever way has another life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest

from cosyserve.engine.workers import client
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import WorkerError


class LostWorker(WorkerEngine):
    name = "lost worker"

    def __init__(self, error: OSError) -> None:
        super().__init__(WorkerOptions("test"))
        self.error, self.lives = error, 0

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        self.lives += 1
        reader = asyncio.StreamReader()
        reader.set_exception(self.error)
        yield reader, Mock()


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(110, "silent"), OSError(113, "no route")]
)
def test_it_is_started_anew(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.0, 0.0, 0.0))
    worker = LostWorker(error)
    with pytest.raises(WorkerError, match="dies at every start"):
        asyncio.run(worker.start())
    assert worker.lives == 3
    assert worker.stats().restarts == 3
