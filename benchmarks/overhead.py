"""What the server adds to the first audio, and what 200 streams cost the gateway.

    python -m benchmarks.overhead [--json FILE]

First audio over HTTP and of an engine in this process, in turns, with the test model. Then 200
streams of 24 kHz PCM from a worker that hums a little faster than they are played.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from http.client import HTTPConnection

import torch

from benchmarks.figures import Figure, run
from benchmarks.servers import Server, bench, humming, served
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.in_process import LocalEngine

TEXT = "The quick brown fox jumps over the lazy dog."
TURNS = 40
STREAMS = 200
CHUNKS, CHUNK_TOKENS = 10, 25


def over_http(server: Server) -> float:
    """Seconds to the first byte of audio, the rest is read."""
    host = server.url.removeprefix("http://")
    connection = HTTPConnection(host)
    connection.connect()
    fields = {"model": "tts-1", "input": TEXT, "response_format": "pcm"}
    begun = time.perf_counter()
    connection.request(
        "POST", "/v1/audio/speech", json.dumps(fields), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read(1)
    first = time.perf_counter() - begun
    answer.read()
    connection.close()
    return first


async def in_process(engine: LocalEngine) -> float:
    request = SpeechRequest(TEXT, engine.model.voices["default"], Mode.PRESET, stream=True)
    begun = time.perf_counter()
    first = 0.0
    async for _ in engine.open(request):
        first = first or time.perf_counter() - begun
    return first


async def overhead() -> Figure:
    torch.set_num_threads(1)
    engine = LocalEngine(assemble(random_parts()))
    with served() as server:
        for _ in range(3):
            over_http(server)
            await in_process(engine)
        pairs = [(over_http(server), await in_process(engine)) for _ in range(TURNS)]
    await engine.close()
    there, here = (statistics.median(times) for times in zip(*pairs, strict=True))
    detail = f"medians {1e3 * there:.1f} and {1e3 * here:.1f} ms"
    return Figure(
        "first audio over HTTP - in process", 1e3 * (there - here), 5.0, "ms", detail=detail
    )


def nothing_computed() -> Figure:
    """Gateway, socketpair and worker process alone."""
    with humming(2, 10, 0.0, 0.0) as server:
        times = [over_http(server) for _ in range(5 * TURNS)]
    detail = f"p99 {1e3 * statistics.quantiles(times, n=100)[-1]:.1f} ms"
    median = 1e3 * statistics.median(times)
    return Figure("first audio over HTTP, nothing computed", median, 5.0, "ms", detail=detail)


def streams() -> list[Figure]:
    with humming(CHUNKS, CHUNK_TOKENS, 0.05, 0.95) as server:
        begun, before = time.perf_counter(), server.gateway.cpu_seconds
        report = bench(server, "--concurrency", str(STREAMS), "--requests", str(STREAMS))
        cores = (server.gateway.cpu_seconds - before) / (time.perf_counter() - begun)
    figures = report["figures"]
    name = f"{STREAMS} streams"
    worst = figures["underrun"]["p99"]
    return [
        Figure(
            f"{name}, C100",
            100 * figures["c100"] * figures["served"] / STREAMS,
            100.0,
            "%",
            at_least=True,
            detail=f"p99 of the worst underrun {1e3 * worst:.0f} ms",
        ),
        Figure(f"{name}, gateway", cores, 1.0, "cores"),
    ]


def measure() -> list[Figure]:
    return [asyncio.run(overhead()), nothing_computed(), *streams()]


if __name__ == "__main__":
    run(measure, __doc__ or "")
