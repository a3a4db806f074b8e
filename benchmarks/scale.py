"""What each way to more machines costs: a worker here, a Triton server, a worker on a Ray cluster.

    python -m benchmarks.scale [--model test] [--turns 40] [--rounds 3]

All on this machine, each seen from the gateway's side as an `Engine`, one after another in turns,
so that a machine that is now faster, now slower does them the same harm. First audio with one
client, its median and its fastest tenth, in which other programs were least in the way; seconds of
speech per second with eight. Beside them what each way adds to the worker here, and its share of
that one's speech. Without Ray, that way is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cosyserve.contracts import SAMPLE_RATE, Engine, SpeechRequest
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.pool import WorkerPool
from cosyserve.triton.engine import TritonEngine
from cosyserve.triton.process import Ports, TritonProcess
from tests.ray.cluster import two_nodes

SENTENCE = "The quick brown fox jumps."
TEXT = "The quick brown fox jumps over the lazy dog, and number {} does so as well."
CLIENTS, REQUESTS = 8, 16


@asynccontextmanager
async def here(options: WorkerOptions) -> AsyncGenerator[Engine, None]:
    pool = WorkerPool([WorkerEngine(options)])
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


@asynccontextmanager
async def on_triton(options: WorkerOptions) -> AsyncGenerator[Engine, None]:
    with tempfile.TemporaryDirectory() as folder:
        repository, ports = Path(folder) / "repository", Ports.free()
        given = (f"slots={CLIENTS}", "threads=1", f"grpc=localhost:{ports.grpc}")
        render(TritonSettings.of(given, model_dir=options.model), repository)
        with TritonProcess(repository, ports) as server:
            await asyncio.to_thread(server.wait_ready)
            engine = TritonEngine([f"localhost:{ports.grpc}"])
            try:
                await engine.start()
                yield engine
            finally:
                await engine.close()


@asynccontextmanager
async def on_ray(options: WorkerOptions) -> AsyncGenerator[Engine, None]:
    from cosyserve.ray.autoscale import Autoscaler
    from cosyserve.ray.engine import RayEngine
    from cosyserve.ray.worker import Share

    with two_nodes():
        engine = RayEngine(options, Share(gpus=0, cpus=1), Autoscaler(1, 1))
        try:
            await engine.start()
            yield engine
        finally:
            await engine.close()


async def heard(engine: Engine, text: str, seed: int) -> tuple[float, float]:
    """Milliseconds to the first audio, and seconds of it."""
    voice = engine.model.voices["default"]
    request = SpeechRequest(text, voice, voice.mode, seed=seed, stream=True)
    begun, first, samples = time.perf_counter(), 0.0, 0
    async with aclosing(engine.open(request)) as chunks:
        async for chunk in chunks:
            first = first or time.perf_counter() - begun
            samples += len(chunk.samples)
    return 1e3 * first, samples / SAMPLE_RATE


async def together(engine: Engine) -> float:
    """Seconds of speech per second with eight clients."""
    gate = asyncio.Semaphore(CLIENTS)

    async def one(number: int) -> float:
        async with gate:
            return (await heard(engine, TEXT.format(number), number))[1]

    begun = time.perf_counter()
    audio = sum(await asyncio.gather(*map(one, range(REQUESTS))))
    return audio / (time.perf_counter() - begun)


async def measure(model: str, turns: int, rounds: int) -> Table:
    options = WorkerOptions(model, device="cpu", threads=1, slots=CLIENTS)
    ways = {"a worker here": here, "Triton": on_triton, "Ray": on_ray}
    if importlib.util.find_spec("ray") is None:
        del ways["Ray"]
    async with AsyncExitStack() as held:
        engines = [await held.enter_async_context(way(options)) for way in ways.values()]
        for engine in engines:  # what the first requests pay is nobody's usual cost
            await together(engine)
        firsts = np.array(
            [[(await heard(engine, SENTENCE, 7))[0] for engine in engines] for _ in range(turns)]
        )
        rates = np.array([[await together(engine) for engine in engines] for _ in range(rounds)])
    columns = "first audio", "", "fastest tenth", "", "speech s/s", ""
    table = Table("", *columns, title=f"{model}, medians")
    tenth = np.quantile(firsts, 0.1, axis=0)
    for way, first, added, fast, fast_added, rate, kept in zip(
        ways,
        np.median(firsts, axis=0),
        np.median(firsts - firsts[:, :1], axis=0),
        tenth,
        tenth - tenth[0],
        np.median(rates, axis=0),
        np.median(rates / rates[:, :1], axis=0),
        strict=True,
    ):
        times = f"{first:.1f} ms", f"{added:+.1f} ms", f"{fast:.1f} ms", f"{fast_added:+.1f} ms"
        table.add_row(way, *times, f"{rate:.1f}", f"{kept:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="test", help="a folder of `cosyserve prepare`, or test")
    parser.add_argument("--turns", type=int, default=40, help="of first audios")
    parser.add_argument("--rounds", type=int, default=3, help="with eight clients")
    given = parser.parse_args()
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    Console().print(asyncio.run(measure(given.model, given.turns, given.rounds)))


if __name__ == "__main__":
    main()
