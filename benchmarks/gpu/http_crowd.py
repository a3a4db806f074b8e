"""Crowds over HTTP: `cosyserve serve` with its worker, and listeners in a process of their own.

Utterances of 5 to 20 s in four voices are asked for at random.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.listeners import heard_of, summary
from benchmarks.gpu.model_folder import write_model
from benchmarks.servers import served

CROWDS = 200, 320, 400, 480, 260, 100


@dataclass
class HTTPFigures:
    """One listener after another; crowds by their listeners on average; the largest of them with
    first audio p95 <= 300 ms and C100 >= 99 %."""

    http_first_audio_ms: dict[str, float]
    http_stages_ms: dict[str, float]  # of one listener, medians by the server's log
    http_crowd: dict[str, dict[str, float]]
    max_realtime_streams_http: int


def http_crowd(bench: Bench) -> HTTPFigures:
    found: dict[str, dict[str, float]] = {}
    stages: dict[str, float] = {}
    points = [(1, 2)] if bench.tiny else [(1, 30), *((count, 500) for count in CROWDS)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        write_model(bench, model)
        settings = {"model": str(model), "device": bench.device.type, "threads": "0"}
        with (
            logged(Path(folder) / "log") as log,
            log.open("w") as stream,
            served(log=stream, profile="throughput", **settings) as server,
        ):
            for listeners, streams in points:
                shortest, longest = (1, 2) if bench.tiny else (5, 20)
                needed = streams * (shortest + longest) / 2 / listeners + longest
                if listeners == 1 and not bench.tiny:
                    needed = streams * 0.3
                if needed > bench.left:
                    continue
                heard = heard_of(server.url, listeners, streams, shortest, longest)
                bench.samples[f"http_{listeners}"] = heard
                found[str(listeners)] = summary(heard, streams)
                stages = stages or stages_ms(log)
    alone = found.pop("1")
    first = {name: alone[f"first_audio_{name}_ms"] for name in ("p50", "p95")}
    smooth = [int(listeners) for listeners, crowd in found.items() if _smooth(crowd)]
    return HTTPFigures(first, stages, found, max(smooth, default=0))


@contextmanager
def logged(file: Path) -> Iterator[Path]:
    """What a server writes there and is no request is repeated here in the end."""
    try:
        yield file
    finally:
        sys.stderr.writelines(line for line in file.open() if not line.startswith("{"))


def stages_ms(log: Path) -> dict[str, float]:
    """Medians of what first audio waited for, by lines of a server's log."""
    told = [json.loads(line).get("stages_ms") for line in log.open() if line.startswith("{")]
    of = [stages for stages in told if stages]
    return {name: statistics.median(stages[name] for stages in of) for name in of[0]}


def _smooth(crowd: dict[str, float]) -> bool:
    return crowd["first_audio_p95_ms"] <= 300 and crowd["c100"] >= 0.99
