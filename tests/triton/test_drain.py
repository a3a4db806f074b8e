"""A server that is told to end finishes its speech and begins no other, until it is told again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import WorkerError
from cosyserve.triton import drain, tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.process import Ports, answers
from tests.triton.asking import LIMITS
from tests.triton.scripted import STREAMING, script, write_repository
from tests.waiting import START_PATIENCE, wait_until

TEXT = " ".join(["The quick brown fox jumps over the lazy dog."] * 8)


def test_whoever_speaks_is_waited_for_and_nobody_else_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, opened_before = tmp_path / "speaking", tmp_path / "link"
    monkeypatch.setenv(drain.FILE, str(file))
    ending = drain.Drain(file)
    opened_before.hardlink_to(file)
    with drain.speaking():
        with drain.speaking():
            ending.begin()
            assert not ending.done
        assert not ending.done
        with pytest.raises(WorkerError, match="about to end"), drain.speaking():
            pass
    assert ending.done
    monkeypatch.setenv(drain.FILE, str(opened_before))
    with pytest.raises(WorkerError, match="about to end"), drain.speaking():
        pass
    ending.close()


def test_a_server_of_somebody_else_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(drain.FILE, raising=False)
    with drain.speaking():
        pass


@contextmanager
def kept(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Ports]]:
    """`cosyserve deploy start` on the folder's repository, in its own time."""
    ports = Ports.free()
    given = [f"--{name}-port={port}" for name, port in vars(ports).items()]
    words = ["-m", "cosyserve", "deploy", "start", str(folder / "repository"), *given]
    env = os.environ | {"COSYSERVE_SHUTDOWN_SECONDS": "1000"}
    with (folder / "log").open("wb") as log:
        keeper = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=env)
    try:
        ready = f"http://localhost:{ports.http}/v2/health/ready"
        wait_until(lambda: answers(ready), (folder / "log").read_text(), START_PATIENCE)
        yield keeper, ports
    finally:
        keeper.kill()
        keeper.wait()


async def samples(client: TritonClient, text: str, heard: asyncio.Event | None = None) -> int:
    count = 0
    inputs = {"target_text": tensors.text(text)}
    async for answer in client.stream(STREAMING, inputs, **LIMITS):
        count += answer["waveform"].size
        if heard:
            heard.set()
    return count


async def for_ever(ask: Callable[[], Awaitable[object]]) -> None:
    """What comes before a signal is still answered."""
    while True:
        await ask()


def test_a_stream_is_heard_to_its_end(tmp_path: Path) -> None:
    render(TritonSettings.of([], model_dir="test"), tmp_path / "repository")

    async def ask(keeper: subprocess.Popen[bytes], address: str) -> None:
        client, heard = TritonClient(address), asyncio.Event()
        whole = await samples(client, TEXT)
        running = asyncio.create_task(samples(client, TEXT, heard))
        await heard.wait()
        keeper.send_signal(signal.SIGTERM)
        with pytest.raises(WorkerError, match="about to end"):
            await for_ever(lambda: samples(client, "Hello."))
        assert await running == whole
        await client.close()

    with kept(tmp_path) as (keeper, ports):
        asyncio.run(ask(keeper, f"localhost:{ports.grpc}"))
        assert keeper.wait(60) == 0, (tmp_path / "log").read_text()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    write_repository(tmp_path / "repository")

    async def ask(keeper: subprocess.Popen[bytes], address: str) -> None:
        client, heard = TritonClient(address), asyncio.Event()
        running = asyncio.create_task(samples(client, script(chunks=9, pause=1), heard))
        await heard.wait()
        keeper.send_signal(signal.SIGTERM)
        with pytest.raises(WorkerError, match="not ready"):
            await for_ever(lambda: client.ready(STREAMING, seconds=5))
        keeper.send_signal(signal.SIGTERM)
        with pytest.raises(WorkerError):
            await running
        await client.close()

    with kept(tmp_path) as (keeper, ports):
        asyncio.run(ask(keeper, f"localhost:{ports.grpc}"))
        assert keeper.wait(60) == 0, (tmp_path / "log").read_text()
