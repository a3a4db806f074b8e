"""Twice the load that the server can carry, and the death of its worker.

    python -m benchmarks.overload [--json FILE]

What a full house serves a second is the capacity; then strangers come at that rate for a minute,
and then at twice that rate: first with a model that only takes its time, so that the machine's
other work does not decide what the capacity is, then with the small voice. Last, a worker with the
test model is killed under 16 streams.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from benchmarks.figures import Figure, run
from benchmarks.servers import Server, bench, paced, served

SECONDS = 60
FULL_HOUSE = 16  # at once: all slots taken, and some wait
STREAMS = 16
ENGLISH = ("--language", "en")  # the small voice speaks nothing else
TEXT = "The quick brown fox jumps over the lazy dog. " * 4


def crowds(server: Server, name: str, seconds: float = SECONDS) -> list[Figure]:
    full = ("--concurrency", str(FULL_HOUSE), *ENGLISH)
    bench(server, *full, "--requests", str(FULL_HOUSE))
    house = bench(server, *full, "--requests", "160")["figures"]
    capacity = house["served"] / house["wall_seconds"]

    def strangers(rate: float) -> dict[str, Any]:
        count = str(int(rate * seconds))
        report = bench(server, "--rate", f"{rate:.3f}", "--requests", count, *ENGLISH)
        figures: dict[str, Any] = report["figures"]
        return figures

    usual, twice = strangers(capacity), strangers(2 * capacity)
    ended = time.perf_counter()
    while httpx.get(f"{server.url}/ready").status_code != 200:
        time.sleep(0.02)
    ready = time.perf_counter() - ended
    others = sum(count for kind, count in twice["failures"].items() if kind != "HTTP 429")
    p95 = [figures["total"]["p95"] for figures in (usual, twice)]
    sent = f"{twice['served']} of {twice['requests']} served at {2 * capacity:.1f} a second"
    return [
        Figure(f"{name}, twice the load: failures but 429", others, 0.0, detail=sent),
        Figure(
            f"{name}, twice the load: p95 / p95 at capacity",
            p95[1] / p95[0],
            1.3,
            detail=f"{p95[0]:.2f} and {p95[1]:.2f} s",
        ),
        Figure(f"{name}, twice the load: ready again after", ready, 1.0, "s"),
    ]


def death(server: Server) -> list[Figure]:
    """kill -9 under streams that are being heard."""
    fields = {"model": "tts-1", "input": TEXT, "response_format": "pcm"}
    ends: list[float] = []

    def listen(_: int) -> bool:
        with httpx.stream(
            "POST", f"{server.url}/v1/audio/speech", json=fields, timeout=60
        ) as answer:
            try:
                for _chunk in answer.iter_raw():
                    pass
            except httpx.RemoteProtocolError:
                ends.append(time.perf_counter())
                return True
        ends.append(time.perf_counter())
        return answer.status_code >= 400

    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(listen, number) for number in range(STREAMS)]
        time.sleep(1.0)
        os.kill(server.worker.pid, signal.SIGKILL)
        killed = time.perf_counter()
        told = sum(stream.result() for stream in streams)
    while httpx.post(f"{server.url}/v1/audio/speech", json=fields, timeout=60).status_code != 200:
        time.sleep(0.05)
    back = time.perf_counter() - killed
    return [
        Figure("kill -9: streams that were told", told, STREAMS, at_least=True),
        Figure("kill -9: the last was told after", max(ends) - killed, 1.0, "s"),
        Figure("kill -9: the next request was served after", back, 10.0, "s"),
    ]


def measure() -> list[Figure]:
    with paced() as server:
        figures = crowds(server, "paced")
    with served(model="nano") as server:
        figures += crowds(server, "small voice")
    with served(model="test") as server:
        return figures + death(server)


if __name__ == "__main__":
    run(measure, __doc__ or "")
