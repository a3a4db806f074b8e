"""Whether the gateway has become slower since an earlier commit.

    git worktree add ../before COMMIT
    python -m benchmarks.before ../before [--turns 400] [--json FILE]

First byte of audio over HTTP where nothing is computed, and the CPU time of a request: the gateway
of that checkout and this one, each before a worker that hums, asked in turns, so that a busy
machine does both the same harm.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.figures import Figure, save, show
from benchmarks.overhead import over_http
from benchmarks.servers import humming

UNHEARD = 20  # first requests, which pay for what is read once
HUM = 2, 10, 0.0, 0.0
GOAL = 1.05


def measure(checkout: Path, turns: int) -> list[Figure]:
    with humming(*HUM, checkout=checkout) as before, humming(*HUM) as now:
        servers = before, now
        for server in servers * UNHEARD:
            over_http(server)
        begun = [server.gateway.cpu_seconds for server in servers]
        pairs = [[over_http(server) for server in servers] for _ in range(turns)]
        ended = [server.gateway.cpu_seconds for server in servers]
    firsts = [1e3 * statistics.median(times) for times in zip(*pairs, strict=True)]
    costs = [1e3 * (end - begin) / turns for begin, end in zip(begun, ended, strict=True)]
    return [
        _ratio("first byte over HTTP, now / before", *firsts),
        _ratio("gateway's CPU for a request, now / before", *costs),
    ]


def _ratio(name: str, before: float, now: float) -> Figure:
    return Figure(name, now / before, GOAL, detail=f"{now:.2f} and {before:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a folder with the earlier commit")
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    given = parser.parse_args()
    figures = measure(given.checkout, given.turns)
    show(figures)
    if given.json:
        save(figures, given.json)


if __name__ == "__main__":
    main()
