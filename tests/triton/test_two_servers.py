"""Two Triton servers behind one engine, with the tensors of the original: one dies, one hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cosyserve.contracts import Mode, SpeechRequest, Voice
from cosyserve.errors import InputError, VoiceError, WorkerError
from cosyserve.triton.engine import TritonEngine
from tests.serving import served
from tests.triton.scripted import Scripted, script, scripted
from tests.waiting import START_PATIENCE, until

SLOW = script(chunks=15, samples=4800, pause=0.1)


class Pair:
    """Two servers that can be started again where they were."""

    def __init__(self, folder: Path) -> None:
        self.stack = ExitStack()
        self.folders = [folder / "one", folder / "two"]
        self.servers = [self.stack.enter_context(scripted(place)) for place in self.folders]

    @property
    def url(self) -> str:
        return "triton://" + ",".join(server.grpc for server in self.servers)

    def kill(self, number: int) -> None:
        self.servers[number].process.process.kill()
        self.servers[number].process.process.wait()

    def revive(self, number: int) -> None:
        if self.servers[number].process.process.poll() is not None:
            ports = self.servers[number].process.ports
            again = scripted(self.folders[number], ports)
            self.servers[number] = self.stack.enter_context(again)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    with pair.stack:
        yield pair


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    yield running
    running.revive(0)
    running.revive(1)


def run(pair: Pair, act: Callable[[TritonEngine], Awaitable[Any]]) -> Any:
    async def acting() -> Any:
        engine = TritonEngine.of(pair.url)
        try:
            await engine.start()
            await until(lambda: all(server.ready for server in engine._servers), START_PATIENCE)
            return await act(engine)
        finally:
            await engine.close()

    return asyncio.run(acting())


def loads(engine: TritonEngine) -> list[int]:
    return [server.load for server in engine._servers]


async def seconds(engine: TritonEngine, text: str) -> float:
    """Of speech."""
    return (await Listener(engine, text).task) / 24_000


class Listener:
    def __init__(self, engine: TritonEngine, text: str) -> None:
        self.samples = 0
        self.task = asyncio.create_task(self._listen(engine, text))

    async def _listen(self, engine: TritonEngine, text: str) -> int:
        request = SpeechRequest(text, engine.model.voices["default"], Mode.PRESET, stream=True)
        async for chunk in engine.open(request):
            self.samples += len(chunk.samples)
        return self.samples


async def listening(engine: TritonEngine, count: int) -> list[asyncio.Task[int]]:
    """The tasks of so many listeners, all of whom hear something."""
    listeners = [Listener(engine, SLOW) for _ in range(count)]
    await until(lambda: all(listener.samples for listener in listeners), START_PATIENCE)
    return [listener.task for listener in listeners]


def test_requests_go_where_the_least_is_to_do(pair: Pair) -> None:
    async def crowd(engine: TritonEngine) -> None:
        tasks = [asyncio.create_task(seconds(engine, SLOW)) for _ in range(6)]
        await until(lambda: loads(engine) == [3, 3], START_PATIENCE)
        assert engine.stats().running == 6
        assert await asyncio.gather(*tasks) == pytest.approx([3.0] * 6)
        assert (loads(engine), engine.stats().sessions) == ([0, 0], 6)

    run(pair, crowd)


def test_a_server_that_dies_ends_its_own_streams_only(pair: Pair) -> None:
    async def lose_one(engine: TritonEngine) -> None:
        tasks = await listening(engine, 4)
        assert loads(engine) == [2, 2]
        pair.kill(0)
        await until(lambda: sum(task.done() for task in tasks) == 2, START_PATIENCE)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in found].count(WorkerError) == 2
        assert [result for result in found if isinstance(result, int)] == [72_000] * 2
        assert await seconds(engine, SLOW) == pytest.approx(3.0)
        assert engine.stats().ready
        await asyncio.to_thread(pair.revive, 0)
        await until(lambda: engine._servers[0].ready, START_PATIENCE)
        assert await asyncio.gather(*(seconds(engine, SLOW) for _ in range(2)))

    run(pair, lose_one)


def test_a_request_that_heard_nothing_yet_goes_to_the_other(pair: Pair) -> None:
    async def lose_both(engine: TritonEngine) -> None:
        task = asyncio.create_task(seconds(engine, script(chunks=1, samples=2400, pause=0.5)))
        await until(lambda: sum(loads(engine)) == 1, START_PATIENCE)
        await asyncio.sleep(0.1)
        pair.kill(loads(engine).index(1))
        assert await task == pytest.approx(0.1)
        pair.kill(0)
        pair.kill(1)
        with pytest.raises(WorkerError):
            await seconds(engine, SLOW)
        assert not engine.stats().ready

    run(pair, lose_both)


def test_a_server_that_hangs_is_left_out_until_it_is_back(pair: Pair) -> None:
    async def hang(engine: TritonEngine) -> None:
        process = pair.servers[0].process.process
        streams = await listening(engine, 2)
        assert loads(engine) == [1, 1]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await until(lambda: not engine._servers[0].ready, START_PATIENCE)
            assert await asyncio.gather(*(seconds(engine, script()) for _ in range(4)))
            found = await asyncio.gather(*streams, return_exceptions=True)
            assert {type(result) for result in found} == {WorkerError, int}
        finally:
            os.kill(process.pid, signal.SIGCONT)
        await until(lambda: engine._servers[0].ready, START_PATIENCE)  # it may have work to end

    run(pair, hang)


def test_a_recording_goes_with_every_request(pair: Pair) -> None:
    """The original's models know no voices."""
    nothing = np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(192, np.float32)
    sound = np.full(24_000, 0.5, np.float32)
    voice = Voice("hello", *nothing, source=sound, source_rate=24_000)

    async def speak(engine: TritonEngine) -> None:
        request = SpeechRequest(script(echo=True), voice)
        chunks = [chunk async for chunk in engine.open(request)]
        assert chunks[0].samples[:2] * 100_000 == pytest.approx([16_000, 16_000])
        assert (chunks[-1].finish, len(chunks[-1].samples)) == ("stop", 0)
        for wrong, kind, told in (
            (SpeechRequest(script(), Voice("hello", *nothing)), VoiceError, "has no recording"),
            (SpeechRequest(script(), voice, speed=2.0), InputError, "neither speed nor"),
        ):
            with pytest.raises(kind, match=told):
                [chunk async for chunk in engine.open(wrong)]

    run(pair, speak)


def test_the_gateway_cuts_streams_of_a_dead_server_and_goes_on(pair: Pair, tmp_path: Path) -> None:
    body = {"model": "cosyvoice2", "voice": "default", "response_format": "pcm"}

    def speak(url: str, text: str) -> httpx.Response:
        return httpx.post(f"{url}/v1/audio/speech", json=body | {"input": text}, timeout=30)

    before = [_count(server) for server in pair.servers]
    with (
        served(tmp_path, "--engine", pair.url) as (url, _),
        httpx.stream(
            "POST", f"{url}/v1/audio/speech", json=body | {"input": SLOW}, timeout=30
        ) as response,
    ):
        heard = response.iter_raw()
        next(heard)
        asked = [_count(server) - was for server, was in zip(pair.servers, before, strict=True)]
        assert sorted(asked) == [0, 1]
        pair.kill(asked.index(1))
        with pytest.raises(httpx.RemoteProtocolError):
            list(heard)
        assert speak(url, script()).status_code == 200
        pair.kill(asked.index(0))
        assert speak(url, script()).status_code == 503
        assert httpx.get(f"{url}/ready").status_code == 503


def _count(server: Scripted) -> int:
    """Requests that have come to it."""
    port = server.process.ports.http
    # A server that has just started answers over gRPC before its HTTP port is open.
    with httpx.Client(transport=httpx.HTTPTransport(retries=5)) as client:
        stats = client.get(f"http://localhost:{port}/v2/models/cosyvoice2/stats").json()
    return int(stats["model_stats"][0]["execution_count"])
