"""Three ways from a Ray cluster to a gateway: a link, a generator of an actor, Ray Serve.

    python -m benchmarks.ray_ways

An actor hums ten chunks of a second, with nothing to compute: what the first and each later chunk
takes, what 64 streams at once cost this process, and whether a listener who leaves is noticed.
Needs `ray[serve]`. A cluster is started for it on this machine.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import ray
from ray import serve
from ray.util import get_node_ip_address
from rich.console import Console
from rich.table import Table

from benchmarks import mock_worker
from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.ray.links import Links, connect
from cosyserve.ray.worker import RayWorker, Share

CHUNKS, TOKENS = 10, 25
TURNS, STREAMS = 60, 64
LEAVE_SECONDS = 5.0

Way = Callable[[int, float], AsyncGenerator[Any, None]]


class Humming:
    """The same for an actor and for a deployment."""

    def __init__(self) -> None:
        self.open = 0
        self.wave = np.zeros(TOKENS * 960, np.float32)

    async def speak(self, chunks: int, pause: float) -> AsyncGenerator[Any, None]:
        self.open += 1
        try:
            for _ in range(chunks):
                await asyncio.sleep(pause)
                yield self.wave
        finally:
            self.open -= 1

    async def count(self) -> int:
        return self.open


class HummingActor:
    """A worker behind a link that hums, in place of one with a model."""

    def work(self, gateway: tuple[str, int], token: bytes) -> None:
        link = connect(gateway, token)
        asyncio.run(mock_worker.main(link.detach(), CHUNKS, TOKENS, 0.0, 0.0))


class HummingWorker(RayWorker):
    def _place(self, token: bytes) -> tuple[Any, Any]:
        actor = ray.remote(HummingActor).options(num_cpus=1).remote()
        return actor, actor.work.remote(self._links.address, token)


async def heard(way: Way) -> tuple[float, float]:
    """Milliseconds to the first chunk, and from one to the next."""
    begun = last = time.perf_counter()
    first = 0.0
    async for _ in way(CHUNKS, 0.0):
        last = time.perf_counter()
        first = first or last - begun
    return 1e3 * first, 1e3 * (last - begun - first) / (CHUNKS - 1)


async def measured(name: str, way: Way) -> list[str]:
    for _ in range(10):
        await heard(way)
    first, later = (
        statistics.median(times)
        for times in zip(*[await heard(way) for _ in range(TURNS)], strict=True)
    )
    cpu = time.process_time()
    await asyncio.gather(*(heard(way) for _ in range(STREAMS)))
    cost = 1e3 * (time.process_time() - cpu) / (STREAMS * CHUNKS)
    return [name, f"{first:.2f} ms", f"{later:.2f} ms", f"{cost:.2f} ms"]


async def noticed(way: Way, count: Callable[[], Any]) -> str:
    """Whether the far end knows that a listener has left."""
    async with aclosing(way(1000, 0.05)) as chunks:
        await anext(chunks)
    begun = time.perf_counter()
    while await count():
        if time.perf_counter() - begun > LEAVE_SECONDS:
            return "no"
        await asyncio.sleep(0.01)
    return f"after {1e3 * (time.perf_counter() - begun):.0f} ms"


async def measure() -> Table:
    links = Links()
    await links.listen(get_node_ip_address())
    worker = HummingWorker(WorkerOptions("mock"), Share(0, 1), links)
    await worker.start()
    actor = ray.remote(Humming).options(num_cpus=1, max_concurrency=2 * STREAMS).remote()
    deployment = serve.deployment(Humming, max_ongoing_requests=2 * STREAMS)
    handle = await asyncio.to_thread(serve.run, deployment.bind(), route_prefix=None)
    request = SpeechRequest("Hm.", worker.model.voices["default"], Mode.PRESET, stream=True)

    def by_link(chunks: int, pause: float) -> AsyncGenerator[Any, None]:
        return worker.open(request)

    async def by_actor(chunks: int, pause: float) -> AsyncGenerator[Any, None]:
        found = actor.speak.options(num_returns="streaming").remote(chunks, pause)
        try:
            async for chunk in found:
                yield await chunk
        finally:
            ray.cancel(found)

    async def by_serve(chunks: int, pause: float) -> AsyncGenerator[Any, None]:
        found = handle.options(stream=True).speak.remote(chunks, pause)
        try:
            async for chunk in found:
                yield chunk
        finally:
            found.cancel()

    table = Table(
        "", "first chunk", "each later one", "gateway's CPU a chunk", "a leaver is noticed"
    )
    table.add_row(*await measured("link", by_link), "(by the tests)")
    table.add_row(
        *await measured("generator of an actor", by_actor),
        await noticed(by_actor, lambda: actor.count.remote()),
    )
    table.add_row(
        *await measured("Ray Serve", by_serve),
        await noticed(by_serve, lambda: handle.count.remote()),
    )
    await worker.close()
    await links.close()
    return table


def main() -> None:
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        Console().print(asyncio.run(measure()))
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
