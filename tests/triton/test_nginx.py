"""nginx before two tritonservers: streams, leaving, and a server that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from cosyserve.deploy.containers.fronts import Front, nginx
from cosyserve.errors import WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from tests.fronts import free_port, nginx_running, require_nginx
from tests.triton.scripted import STREAMING, Scripted, script, scripted

LIMITS = {"first_seconds": 20.0, "between_seconds": 20.0}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Scripted]]:
    require_nginx()
    folder = tmp_path_factory.mktemp("nginx")
    with scripted(folder / "one") as one, scripted(folder / "two") as two:
        yield [one, two]


class Listener:
    """Hears streams; `begun` of them have said something."""

    def __init__(self, client: TritonClient) -> None:
        self.client, self.begun = client, 0

    async def hear(self, **orders: float) -> int:
        inputs = {"target_text": tensors.text(script(**orders))}
        count = 0
        async with aclosing(self.client.stream(STREAMING, inputs, **LIMITS)) as answers:
            async for answer in answers:
                assert np.allclose(answer["waveform"], count / 100)
                self.begun += not count
                count += 1
        return count

    async def several(self, count: int, **orders: float) -> list[asyncio.Task[int]]:
        """So many streams, all of which have begun."""
        self.begun = 0
        tasks = [asyncio.create_task(self.hear(**orders)) for _ in range(count)]
        async with asyncio.timeout(10):
            while self.begun < count:
                await asyncio.sleep(0.01)
        return tasks


async def streams_leaving_and_a_death(address: str, both: list[Scripted]) -> None:
    client = TritonClient(address)
    listener = Listener(client)
    try:
        short = await listener.several(8, chunks=3, pause=0.1)
        assert await asyncio.gather(*short) == [3] * 8

        leaving = await listener.several(4, chunks=100, pause=0.1)
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        for server in both:  # each had half of them
            await asyncio.to_thread(server.wait_cancelled, 2)

        long = await listener.several(8, chunks=20, pause=0.1)
        both[0].process.kill()
        ended = await asyncio.gather(*long, return_exceptions=True)
        assert [type(item) for item in ended].count(WorkerError) == 4, ended
        assert ended.count(20) == 4, "a stream of the other server was lost"

        for _ in range(10):  # the dead one is left out
            assert await listener.hear(chunks=3) == 3
    finally:
        await client.close()


def test_nginx_before_two_servers(both: list[Scripted], tmp_path: Path) -> None:
    servers = tuple(f"127.0.0.1:{server.process.ports.grpc}" for server in both)
    port = free_port()
    with nginx_running(nginx(Front(tritons=servers, grpc_port=port)), tmp_path, port) as address:
        asyncio.run(streams_leaving_and_a_death(address, both))
