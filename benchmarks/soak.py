"""Whether a server lasts: mixed load for minutes, and nothing that grows.

    python -m benchmarks.soak [--minutes 10] [--model nano] [--json FILE]

Ten rounds of load by listeners, leavers, fools, writers of text in pieces and people with new
voices; in four of them the worker is killed, too. After each round the server comes to rest, and
every process is looked at: memory, files, threads, shared memory. What has grown through the rounds
with kills, and through those after them, is a figure with a goal; a figure that is missed is exit
status 1. The server's caches are small, so that they are full after the first two rounds.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figures import Figure, save, show
from benchmarks.servers import Process, Server, served
from benchmarks.soak_clients import Crowd
from cosyserve.triton.process import REGION_PREFIX, SHARED_MEMORY

ROUNDS, REST_SECONDS = 10, 3.0
KILLS = range(1, 5)  # the rounds in which the worker is killed
CACHE_BYTES = 2_000_000
AT_REST = {"ready": 1.0, "running": 0.0, "waiting": 0.0}
MB = 1e6
GATEWAY, WORKER = "cosyserve", "cosyserve.engine.workers.worker"
# Beyond which something leaks. While a worker is away the gateway is at its busiest, with refusals:
# how far its memory is raised by that depends on chance, so that only much of it is a leak.
GROWTH_MB = {
    "with kills": {GATEWAY: 40.0, WORKER: 24.0},
    "without": {GATEWAY: 8.0, WORKER: 24.0},
}
GROWTH = {"processes": 0, "files": 0, "threads": 3, "shared_memory": 0}  # pools of threads fill up


@dataclass(frozen=True)
class Rest:
    """What there is when nobody asks for anything, by the name of a process."""

    at: float  # seconds since the start
    kills: int
    processes: dict[str, dict[str, float]]
    shared_memory: int  # files in /dev/shm that are no tritonserver's

    @classmethod
    def of(cls, server: Server, began: float, kills: int) -> Rest:
        found: dict[str, dict[str, float]] = {}
        for process in (server.gateway, *server.gateway.descendants()):
            facts = _facts(process)
            known = found.setdefault(process.name, dict.fromkeys(facts, 0.0))
            for fact, value in facts.items():
                known[fact] += value
        others = ("triton", REGION_PREFIX)
        shared = [file for file in SHARED_MEMORY.iterdir() if not file.name.startswith(others)]
        return cls(round(time.monotonic() - began, 1), kills, found, len(shared))

    def fact(self, process: str, fact: str) -> float:
        return self.processes.get(process, {}).get(fact, 0.0)


def _facts(process: Process) -> dict[str, float]:
    return {
        "processes": 1,
        "rss_mb": process.bytes / MB,
        "uss_mb": process.own_bytes / MB,
        "files": process.files,
        "threads": process.threads,
        "shared_memory": process.shared_memory,
    }


def come_to_rest(server: Server) -> None:
    """Returns when the server is ready and nothing runs."""
    until = time.monotonic() + 60
    while not _is_at_rest(server):
        if time.monotonic() > until:
            sys.exit("the server does not come to rest")
        time.sleep(0.2)
    time.sleep(REST_SECONDS)


def _is_at_rest(server: Server) -> bool:
    text = httpx.get(f"{server.url}/metrics").text
    found = dict(re.findall(r"^cosyserve_(ready|running|waiting)\S* (\S+)$", text, re.MULTILINE))
    return {name: float(value) for name, value in found.items()} == AT_REST


def kill_later(server: Server, crowd: Crowd, seconds: float) -> threading.Timer:
    def kill() -> None:
        crowd.kills.append(time.monotonic())
        os.kill(server.worker.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    return timer


def soak(minutes: float, model: str) -> tuple[list[Figure], dict[str, Any]]:
    seconds = max(5.0, minutes * 60 / ROUNDS - REST_SECONDS)
    rests: list[Rest] = []
    with served(model=model, voice_cache_bytes=str(CACHE_BYTES)) as server:
        crowd, began = Crowd(server.url), time.monotonic()
        for number in range(ROUNDS):
            timer = None
            if number in KILLS:
                timer = kill_later(server, crowd, seconds / 2)
            crowd.come(seconds)
            if timer:
                timer.join()
            come_to_rest(server)
            rests.append(Rest.of(server, began, len(crowd.kills)))
            print(f"round {number + 1} of {ROUNDS}: {_line(rests[-1])}", flush=True)
    figures = [*_conduct(crowd), *_growth(rests)]
    details = {
        "minutes": minutes,
        "model": model,
        "outcomes": dict(sorted(crowd.outcomes.items())),
        "unexpected": crowd.unexpected,
        "rests": [vars(rest) for rest in rests],
    }
    return figures, details


def _line(rest: Rest) -> str:
    parts = [
        f"{name.rpartition('.')[2]} {facts['uss_mb']:.0f} MB, {facts['files']:.0f} files, "
        f"{facts['threads']:.0f} threads"
        for name, facts in sorted(rest.processes.items())
    ]
    return "; ".join(parts)


def _conduct(crowd: Crowd) -> list[Figure]:
    worst = ", ".join(sorted(set(crowd.unexpected))[:4])
    heard = sum(count for what, count in crowd.outcomes.items() if what.endswith("heard"))
    detail = f"{crowd.visits} visits, {heard} heard to the end, {len(crowd.kills)} kills {worst}"
    return [
        Figure("visits that ended ill", len(crowd.unexpected), 0.0, detail=detail),
        Figure("visits that were heard to the end", heard, 1.0, at_least=True),
    ]


def _growth(rests: Sequence[Rest]) -> list[Figure]:
    """The last two rests against the first two, with kills and without. Not counted are the very
    first and that of the last worker's first round, when everything is used for the first time."""
    parts = {"with kills": rests[KILLS.start : KILLS.stop], "without": rests[KILLS.stop + 1 :]}
    figures = []
    for part, taken in parts.items():
        figures += [
            _figure(f"memory of {process}, {part}", taken, process, "uss_mb", most)
            for process, most in GROWTH_MB[part].items()
        ]
        names = {name for rest in taken for name in rest.processes}
        for process in sorted(names):
            figures += [
                _figure(f"{fact} of {process}, {part}", taken, process, fact, most)
                for fact, most in GROWTH.items()
            ]
        shared = [rest.shared_memory for rest in taken]
        figures.append(Figure(f"/dev/shm, {part}", max(shared[-2:]) - max(shared[:2]), 0.0))
    return figures


def _figure(name: str, rests: Sequence[Rest], process: str, fact: str, most: float) -> Figure:
    values = [rest.fact(process, fact) for rest in rests]
    unit = "MB" if fact == "uss_mb" else ""
    grown = median(values[-2:]) - median(values[:2]) if unit else max(values[-2:]) - max(values[:2])
    detail = ", ".join(f"{value:.0f}" for value in values)
    return Figure(name, round(grown, 2), most, unit, detail=detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    figures, details = soak(options.minutes, options.model)
    show(figures)
    if options.json:
        save(figures, options.json, **details)
    sys.exit(not all(figure.reached for figure in figures))


if __name__ == "__main__":
    main()
