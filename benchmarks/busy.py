"""What listeners hear of a server on a CPU that other programs want, too.

    python -m benchmarks.busy [--json FILE]

First audio of the shipped voice alone, then beside programs that never rest: one, and as many as
there are cores. Each is asked of the server as it is and of one whose threads are fixed, as torch
has them and one, in turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from benchmarks.figures import Figure, run
from benchmarks.overhead import over_http
from benchmarks.servers import served

TURNS, WARM = 4, 1
RESTED = 3.0  # seconds, behind which what a start leaves to other processes is done
GOALS = {0: 1.25, 1: 1.5, os.cpu_count() or 1: 2.0}  # times the better one of the fixed


@contextmanager
def programs(count: int) -> Iterator[None]:
    """Programs that never rest."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in running:
            program.kill()
            program.wait()


def measure() -> list[Figure]:
    fixed = sorted({1, torch.get_num_threads()})
    figures = []
    with ExitStack() as stack:
        servers = {
            threads: stack.enter_context(served(model="nano", threads=str(threads)))
            for threads in (0, *fixed)
        }
        time.sleep(RESTED)
        for busy, goal in GOALS.items():
            with programs(busy):
                rounds = [
                    {threads: over_http(server) for threads, server in servers.items()}
                    for _ in range(WARM + TURNS)
                ][WARM:]
            found = {
                threads: 1e3 * statistics.median(one[threads] for one in rounds)
                for threads in servers
            }
            best = min(found[threads] for threads in fixed)
            detail = ", ".join(f"{threads} fixed {found[threads]:.0f}" for threads in fixed)
            figures.append(
                Figure(
                    f"first audio beside {busy} busy programs / the better fixed one",
                    found[0] / best,
                    goal,
                    detail=f"{found[0]:.0f} ms, {detail}",
                )
            )
    return figures


if __name__ == "__main__":
    run(measure, __doc__ or "")
