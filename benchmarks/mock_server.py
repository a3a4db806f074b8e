"""The real gateway before a worker that hums; options as `benchmarks.mock_worker` has them."""

from __future__ import annotations

import sys
import tempfile

import uvloop

from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store


class MockEngine(WorkerEngine):
    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(WorkerOptions("mock"))
        self.words = words

    def command(self, fd: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.mock_worker", str(fd), *self.words]


async def main(words: tuple[str, ...]) -> None:
    engine = MockEngine(words)
    await engine.start()
    with tempfile.TemporaryDirectory() as folder:
        await serve(engine, open_store(folder), "127.0.0.1", 0, Limits.of(Settings()))


if __name__ == "__main__":
    uvloop.run(main(tuple(sys.argv[1:])))
