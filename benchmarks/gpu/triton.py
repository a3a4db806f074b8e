"""Triton on a GPU against the gateway, and what a second process or device takes of that GPU.

    python -m benchmarks.gpu.triton [--only WAY ...] [--listeners N ...] [--seconds S]
                                    [--logs FOLDER] [--json FILE] [--tiny]

Each way of serving is started as its users start it, one after another, with the same model of full
size and random weights, and hears the same texts in the same voices: one after another, then so
many listeners on average, then as many at once as it has slots. The report is written after each
way and kept as benchmarks/history/TIME-GPU-triton.json. `--tiny` tries it on a CPU with small
networks and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.history import keep, provenance
from benchmarks.gpu.listeners import heard_of, summary
from benchmarks.gpu.model_folder import write_model
from benchmarks.servers import served
from cosyserve.deploy.nvidia_smi import nvidia_smi
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.engine.compute.profile import THROUGHPUT
from cosyserve.triton.keeper import TritonKeeper
from cosyserve.triton.process import Ports

SLOTS = 160  # more than 100 listeners on average ever take at once
FIRST = 3  # streams of a server, which are not counted
START_SECONDS = 180.0  # of a tritonserver, kernels compiled included
LOG_LINES = 1000
WIDTH = 120  # of the table


@dataclass(frozen=True)
class Setup:
    """What all ways have in common."""

    model: Path
    folder: Path
    logs: Path
    device: str
    slots: int
    alone: int  # streams one after another
    seconds: tuple[int, int]  # of the shortest and the longest utterance


@dataclass(frozen=True)
class Started:
    """A server: where it is asked, and how many it serves at once."""

    address: str
    slots: int


@contextmanager
def gateway(setup: Setup, name: str, **settings: str) -> Iterator[Started]:
    """`cosyserve serve`; by default one worker has both LM and token2wav."""
    given = {"model": str(setup.model), "slots": str(setup.slots)} | settings
    with (
        (setup.logs / f"{name}.log").open("w", encoding="utf-8") as log,
        served(log=log, **given) as server,
    ):
        yield Started(server.url, int(given["slots"]))


@contextmanager
def tritonserver(setup: Setup, name: str, **keys: str) -> Iterator[str]:
    """What `cosyserve deploy triton` writes, kept as by `cosyserve deploy start` -> the server's
    gRPC side."""
    repository, ports = setup.folder / name, Ports.free()
    given = {"device": setup.device, "slots": str(setup.slots), "max_requests": "256"} | keys
    settings = [f"{key}={value}" for key, value in given.items()]
    render(TritonSettings.of(settings, model_dir=str(setup.model)), repository)
    log = setup.logs / f"{name}.log"
    keeper = TritonKeeper(repository, ports, [f"--log-file={log}"])
    try:
        keeper.wait_ready(START_SECONDS)
        yield f"localhost:{ports.grpc}"
    finally:
        with log.open("a", encoding="utf-8") as whole:
            whole.write(keeper.server.tail(LOG_LINES))  # what its Python processes wrote
        keeper.stop()


@contextmanager
def worker(setup: Setup) -> Iterator[Started]:
    with gateway(setup, "worker", device=setup.device) as started:
        yield started


@contextmanager
def devices(setup: Setup) -> Iterator[Started]:
    """One worker whose LM and token2wav are told their devices, here the same one."""
    apart = {"lm_device": setup.device, "token2wav_device": setup.device}
    with gateway(setup, "devices", **apart) as started:
        yield started


@contextmanager
def throughput(setup: Setup) -> Iterator[Started]:
    slots = str(THROUGHPUT.slots if setup.slots == SLOTS else setup.slots)
    settings = {"device": setup.device, "profile": "throughput", "slots": slots}
    with gateway(setup, "throughput", **settings) as started:
        yield started


@contextmanager
def triton(setup: Setup) -> Iterator[Started]:
    """LM and token2wav are processes of one tritonserver."""
    with tritonserver(setup, "triton") as address:
        yield Started(f"triton://{address}", setup.slots)


@contextmanager
def roles(setup: Setup) -> Iterator[Started]:
    """A tritonserver for the LM, and one for all the rest."""
    with ExitStack() as held:
        lm = held.enter_context(tritonserver(setup, "lm", role="lm"))
        rest = held.enter_context(tritonserver(setup, "token2wav", role="token2wav", grpc=lm))
        yield Started(f"triton://{rest}", setup.slots)


WAYS: dict[str, Callable[[Setup], Any]] = {
    way.__name__: way for way in (worker, triton, devices, roles, throughput)
}
BOTH = ["triton", "worker"]


def measure(
    setup: Setup, way: str, listeners: list[int], seconds: float, samples: dict[str, Any]
) -> dict[str, Any]:
    """Figures of one way; a crowd is so large that it takes these seconds to ask."""
    before, begun = used_gib(), time.monotonic()
    shortest, longest = setup.seconds
    with WAYS[way](setup) as started:
        ready, at_rest = time.monotonic() - begun, used_gib()

        def heard(name: str, count: int, streams: int, unheard: int = 0) -> dict[str, float]:
            found = heard_of(started.address, count, streams, shortest, longest)[unheard:]
            samples[f"{way}_{name}"] = found
            return summary(found, streams - unheard)

        figures: dict[str, Any] = {"slots": started.slots, "ready_s": ready}
        figures["alone"] = heard("alone", 1, FIRST + setup.alone, FIRST)
        for count in listeners:
            streams = round(2 * count * seconds / (shortest + longest))
            figures[str(count)] = heard(str(count), count, streams)
        figures["at_once"] = heard("at_once", started.slots, started.slots)
        full = used_gib()
    if before is not None and at_rest is not None and full is not None:
        figures["memory_gib"] = {"at_rest": at_rest - before, "full": full - before}
    return figures


def used_gib() -> float | None:
    """Of the first GPU's memory, by all processes."""
    used = nvidia_smi("memory.used").removesuffix(" MiB")
    return int(used) / 1024 if used.isdigit() else None


def table(ways: dict[str, dict[str, Any]], device: str) -> Table:
    """A column for each way; times and memory with their ratios to the first."""
    made = Table("", *ways, title=f"{device}, random weights")
    first, *others = ways.values()

    def ratios(name: str, *keys: str) -> None:
        if all(keys[0] in way for way in ways.values()):
            base, *rest = (way[keys[0]][keys[1]] for way in ways.values())
            made.add_row(name, f"{base:.1f}", *(f"{it:.1f} ({it / base:.2f} ×)" for it in rest))

    crowds = [name for name in first if name.isdigit() and all(name in way for way in others)]
    for crowd in ("alone", *crowds, "at_once"):
        for half in ("p50", "p95"):
            ratios(f"{crowd}: first audio {half}, ms", crowd, f"first_audio_{half}_ms")
        found = [way[crowd] for way in ways.values()]
        made.add_row(f"{crowd}: no gap above 100 ms", *(f"{one['c100']:.1%}" for one in found))
        made.add_row(f"{crowd}: failed", *(f"{one['failures']}" for one in found))
    for when in ("at_rest", "full"):
        ratios(f"GPU memory, {when}, GiB", "memory_gib", when)
    for name in ("slots", "ready_s"):
        made.add_row(name, *(f"{way[name]:.0f}" for way in ways.values()))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=WAYS, default=["triton", "worker"], help="ways"
    )
    parser.add_argument("--listeners", nargs="*", type=int, default=[32, 100], help="on average")
    parser.add_argument("--seconds", type=float, default=25.0, help="that each crowd asks")
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs")
    parser.add_argument("--json", type=Path, help="where else to keep the report")
    parser.add_argument("--tiny", action="store_true", help="small networks; nothing is kept")
    options = parser.parse_args()
    if not (options.tiny or torch.cuda.is_available()):
        sys.exit("torch sees no GPU: try --tiny")
    with tempfile.TemporaryDirectory() as name:
        report = run(options, Path(name))
    ways = report["ways"]
    if ways:
        ordered = sorted(ways, key=list(WAYS).index)
        Console(width=WIDTH).print(table({way: ways[way] for way in ordered}, report["device"]))
    if report["failed"]:
        sys.exit(f"failed: {report['failed']}")


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    bench = Bench(options.tiny, deadline=float("inf"))
    device = "cpu" if bench.device.type == "cpu" else "cuda:0"
    logs = options.logs or folder
    logs.mkdir(parents=True, exist_ok=True)
    slots, alone, seconds = (4, 4, (1, 2)) if bench.tiny else (SLOTS, 30, (5, 10))
    setup = Setup(folder / "model", folder, logs, device, slots, alone, seconds)
    write_model(bench, setup.model)
    report: dict[str, Any] = {
        **provenance(" ".join(("python -m benchmarks.gpu.triton", *sys.argv[1:]))),
        "family": bench.family,
        "ways": {},
        "failed": {},
        "samples": {},
    }
    for way in options.only:
        try:
            figures = measure(setup, way, options.listeners, options.seconds, report["samples"])
        except Exception as error:  # one way must not take the others along
            traceback.print_exc()
            report["failed"][way] = f"{type(error).__name__}: {error}"
        else:
            report["ways"][way] = figures
            sys.stdout.write(f"{way}: {json.dumps(figures)}\n")
            sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps(report, indent=1), "utf-8")
        if not options.tiny:
            keep(report, "triton")
    return report


if __name__ == "__main__":
    main()
