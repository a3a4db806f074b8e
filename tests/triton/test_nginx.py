"""nginx before two tritonservers: streams, leaving, and a server that is killed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from cosyserve.errors import WorkerError
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from tests.triton.scripted import STREAMING, Scripted, script, scripted

LIMITS = {"first_seconds": 20.0, "between_seconds": 20.0}
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
CONFIG = Path(__file__).parents[2] / "docs" / "nginx-triton.conf"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Scripted]]:
    if NGINX is None:
        pytest.skip("nginx is not here: apt-get install -y nginx")
    folder = tmp_path_factory.mktemp("nginx")
    with scripted(folder / "one") as one, scripted(folder / "two") as two:
        yield [one, two]


@contextmanager
def nginx(folder: Path, servers: list[Scripted]) -> Iterator[str]:
    """Its address, with the configuration that the documentation shows."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = CONFIG.read_text()
    for shown, server in zip(("one:8001", "two:8001"), servers, strict=True):
        assert shown in text
        text = text.replace(shown, f"127.0.0.1:{server.process.ports.grpc}")
    text = text.replace("listen 8001", f"listen 127.0.0.1:{port}")
    whole = f"pid {folder}/pid;\nerror_log {folder}/error.log;\ndaemon off;\n{text}"
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        whole = whole.replace("http {", f"http {{\n  {name}_temp_path {folder}/{name};", 1)
    (folder / "nginx.conf").write_text(whole)
    assert NGINX
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")])
    try:
        until = time.monotonic() + 5
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < until, "nginx does not listen"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)


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
    with nginx(tmp_path, both) as address:
        asyncio.run(streams_leaving_and_a_death(address, both))
