"""Workers on a Ray cluster of two real nodes, one of which is killed while it speaks."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk, Floats, Mode, SpeechRequest
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import CheckpointError, InputError, WorkerError
from tests.ray.cluster import TwoNodes, two_nodes

TEXT = "The quick brown fox jumps over the lazy dog. "
OPTIONS = WorkerOptions("test", device="cpu", threads=1, slots=4)
PATIENCE = 120.0  # seconds; a worker imports torch, and all tests share two cores


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes() as cluster:
        yield cluster


def with_engine(
    least: int, most: int, story: Callable[..., Awaitable[None]], options: WorkerOptions = OPTIONS
) -> None:
    from cosyserve.ray.autoscale import Autoscaler
    from cosyserve.ray.engine import RayEngine
    from cosyserve.ray.worker import Share

    async def run() -> None:
        scale = Autoscaler(least, most, shrink_seconds=10.0)
        engine = RayEngine(options, Share(gpus=0, cpus=1), scale)
        try:
            await engine.start()
            await story(engine)
        finally:
            await engine.close()

    asyncio.run(run())
    until = time.monotonic() + PATIENCE
    while actors():
        assert time.monotonic() < until, "workers outlive their gateway"
        time.sleep(0.1)


def actors() -> list[str]:
    """Processes of Ray that run a worker."""
    found = subprocess.run(["pgrep", "-f", r"^ray::Actor"], capture_output=True, text=True)
    return found.stdout.split()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


def asked(engine: object, text: str = TEXT, seed: int = 0) -> SpeechRequest:
    voice = engine.model.voices["default"]  # type: ignore[attr-defined]
    return SpeechRequest(text, voice, Mode.PRESET, seed=seed, stream=True)


async def listen(chunks: AsyncIterator[AudioChunk]) -> Floats:
    return np.concatenate([chunk.samples async for chunk in chunks])


async def pieces() -> AsyncIterator[str]:
    for word in TEXT.split(" "):
        yield word + " "


def test_two_nodes_speak_as_one_and_one_of_them_dies(cluster: TwoNodes) -> None:
    async def story(engine: object) -> None:
        await until(lambda: all(worker.stats().ready for worker in engine.workers))
        one, two = engine.workers

        here, there = [await listen(worker.open(asked(engine, seed=3))) for worker in (one, two)]
        assert np.array_equal(here, there)
        request = asked(engine)
        assert len(await listen(engine.open(SpeechRequest(pieces(), request.voice, Mode.PRESET))))

        leaver = two.open(asked(engine, TEXT * 20))
        await anext(leaver)
        await until(lambda: two.stats().running == 1)
        await leaver.aclose()
        await until(lambda: (two.stats().running, two.stats().waiting) == (0, 0))

        streams = [
            asyncio.create_task(listen(engine.open(asked(engine, TEXT * 8)))) for _ in "1234"
        ]
        await until(lambda: one.stats().running == two.stats().running == 2)
        await asyncio.to_thread(cluster.kill_node)
        killed = time.monotonic()
        ends = await asyncio.gather(*streams, return_exceptions=True)
        heard = [end for end in ends if isinstance(end, np.ndarray)]
        errors = [end for end in ends if isinstance(end, WorkerError)]
        assert (len(heard), len(errors)) == (2, 2)
        assert all("died while it was speaking" in str(error) for error in errors)
        assert np.array_equal(*heard)
        assert time.monotonic() - killed < PATIENCE
        assert [worker.stats().ready for worker in engine.workers].count(True) == 1
        after = await asyncio.gather(*(listen(engine.open(asked(engine))) for _ in "123"))
        assert all(len(speech) for speech in after)
        assert engine.stats().ready
        assert (engine.stats().running, engine.stats().waiting) == (0, 0)
        assert len(actors()) == 1

        await asyncio.to_thread(cluster.add_node)
        await until(lambda: all(worker.stats().ready for worker in engine.workers))
        again = [await listen(worker.open(asked(engine, seed=3))) for worker in engine.workers]
        assert all(np.array_equal(speech, here) for speech in again)

    with_engine(2, 2, story)


def test_workers_come_with_requests_and_go_without(cluster: TwoNodes) -> None:
    async def story(engine: object) -> None:
        engine._adjusting.cancel()  # the clock is ours
        (first,) = engine.workers
        streams = [asyncio.create_task(listen(engine.open(asked(engine, TEXT * 4)))) for _ in "123"]
        await until(lambda: first.load == 3)
        await engine.adjust(100.0)
        second = engine.workers[1]
        assert all(len(speech) for speech in await asyncio.gather(*streams))
        await until(lambda: second.stats().ready)
        assert len(await listen(second.open(asked(engine))))

        long = asyncio.create_task(listen(first.open(asked(engine, TEXT * 10))))
        await until(lambda: first.load == 1)
        sessions = engine.stats().sessions
        await engine.adjust(109.0)
        assert engine.workers == [first, second]
        await engine.adjust(111.0)
        assert engine.workers == [first]  # the idle one went
        assert engine.stats().sessions >= sessions  # and its totals stay
        await until(lambda: len(actors()) == 1)
        assert len(await long)

    with_engine(1, 2, story)


def test_a_model_that_no_node_has_is_told(cluster: TwoNodes) -> None:
    async def story(engine: object) -> None:
        raise AssertionError("it should not have started")

    with pytest.raises(CheckpointError, match="nowhere"):
        with_engine(1, 1, story, WorkerOptions("/nowhere", device="cpu"))


def test_without_a_cluster_the_way_to_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="no Ray: `make test-ray` installs it")
    monkeypatch.setenv("RAY_ADDRESS", "ray://localhost:10001")
    with pytest.raises(InputError, match="on a node of the cluster"):
        with_engine(1, 1, lambda engine: asyncio.sleep(0))
