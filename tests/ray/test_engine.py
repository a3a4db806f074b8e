"""Workers on a Ray cluster of two real nodes, one of which is killed while it speaks."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import AudioChunk, Floats, Mode, SpeechRequest
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import CheckpointError, InputError, WorkerError
from cosyserve.voices.store import open_store
from tests.ray.cluster import TwoNodes, two_nodes
from tests.redis_server import redis_running
from tests.serving import served

TEXT = "The quick brown fox jumps over the lazy dog. "
LONG = TEXT * 8
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
    assert_no_actor_is_left()


def assert_no_actor_is_left() -> None:
    until = time.monotonic() + PATIENCE
    while actors():
        assert time.monotonic() < until, "workers outlive their gateway"
        time.sleep(0.1)


def actors() -> list[str]:
    """Processes of Ray that run a worker."""
    found = subprocess.run(["pgrep", "-f", r"^ray::WorkerActor"], capture_output=True, text=True)
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


async def follow(chunks: AsyncIterator[AudioChunk], heard: list[AudioChunk]) -> None:
    async for chunk in chunks:
        heard.append(chunk)  # noqa: PERF401 - it is looked at meanwhile


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

        leaver = two.open(asked(engine, LONG))
        await anext(leaver)
        await until(lambda: two.stats().running == 1)
        await leaver.aclose()
        await until(lambda: (two.stats().running, two.stats().waiting) == (0, 0))

        heard: list[list[AudioChunk]] = [[] for _ in range(4)]
        streams = [asyncio.create_task(follow(engine.open(asked(engine, LONG)), f)) for f in heard]
        await until(lambda: all(heard))  # who has heard nothing would go to the other worker
        assert [one.load, two.load] == [2, 2]
        await asyncio.to_thread(cluster.kill_node)
        ends = await asyncio.gather(*streams, return_exceptions=True)
        errors = [end for end in ends if isinstance(end, WorkerError)]
        whole = [chunks for chunks, end in zip(heard, ends, strict=True) if end is None]
        assert (len(whole), len(errors)) == (2, 2)
        assert all("died while it was speaking" in str(error) for error in errors)
        assert [chunks[-1].finish for chunks in whole] == ["stop", "stop"]
        assert [worker.stats().ready for worker in engine.workers].count(True) == 1
        after = await asyncio.gather(*(listen(engine.open(asked(engine))) for _ in "123"))
        assert all(len(speech) for speech in after)
        assert engine.stats().ready
        await until(lambda: (engine.stats().running, engine.stats().waiting) == (0, 0))
        assert len(actors()) == 1

        cluster.add_node()  # Ray wants the main thread for it
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


def test_the_whole_server_speaks_with_voices_of_redis(cluster: TwoNodes, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    files = {"file": ("me.flac", encode(noise, AudioFormat.FLAC))}
    given = {"name": "me", "consent": "mine", "text": "Words."}
    asked = {"model": "test", "input": TEXT, "voice": "me", "response_format": "pcm"}
    with (
        redis_running(tmp_path) as redis,
        served(tmp_path, "--engine", "ray", "--device", "cpu", "--voice-store", redis.url) as (
            url,
            process,
        ),
    ):
        added = httpx.post(f"{url}/v1/audio/voices", files=files, data=given, timeout=PATIENCE)
        assert added.status_code == 201, added.text
        assert open_store(redis.url).get("me").speech_tokens.size
        answer = httpx.post(f"{url}/v1/audio/speech", json=asked, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 10_000
        assert len(actors()) == 1
    assert process.returncode == 0
    assert_no_actor_is_left()
