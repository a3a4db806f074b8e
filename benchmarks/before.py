"""Whether the gateway has become slower since an earlier commit.

    git worktree add ../before COMMIT
    python -m benchmarks.before ../before [--rounds 11] [--turns 120] [--json FILE]

First byte of audio over HTTP where nothing is computed, and the CPU time of a request: the gateway
of that checkout and this one, each before a worker that hums, asked in turns, so that a busy
machine does both the same harm. Each round starts both anew, for much depends on which cores their
processes got; the median round counts.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, save, show
from benchmarks.overhead import over_http
from benchmarks.servers import Server, humming

UNHEARD = 20  # first requests, which pay for what is read once
HUM = 2, 10, 0.0, 0.02  # the second chunk comes when the first was sent
GOAL = 1.05


class Round(NamedTuple):
    """Milliseconds of both gateways: to the first byte, and of CPU for a request."""

    first_before: float
    first_now: float
    cpu_before: float
    cpu_now: float


def measure(checkout: Path, rounds: int, turns: int) -> list[Figure]:
    found = [_round(checkout, turns) for _ in range(rounds)]
    firsts = [(one.first_before, one.first_now) for one in found]
    cpu = [(one.cpu_before, one.cpu_now) for one in found]
    return [
        _ratio("first byte over HTTP, now / before", firsts),
        _ratio("gateway's CPU for a request, now / before", cpu),
    ]


def _round(checkout: Path, turns: int) -> Round:
    with humming(*HUM, checkout=checkout) as before, humming(*HUM) as now:
        servers = before, now
        for server in servers * UNHEARD:
            over_http(server)
        begun = [server.gateway.cpu_seconds for server in servers]
        pairs = [_pair(before, now, reverse=bool(turn % 2)) for turn in range(turns)]
        ended = [server.gateway.cpu_seconds for server in servers]
    firsts = [1e3 * statistics.median(times) for times in zip(*pairs, strict=True)]
    costs = [1e3 * (end - begin) / turns for begin, end in zip(begun, ended, strict=True)]
    return Round(*firsts, *costs)


def _pair(before: Server, now: Server, reverse: bool) -> tuple[float, float]:
    """Either goes first in every other turn: whoever is asked second finds the other still busy."""
    if reverse:
        later, earlier = over_http(now), over_http(before)
        return earlier, later
    return over_http(before), over_http(now)


def _ratio(name: str, pairs: list[tuple[float, float]]) -> Figure:
    ratios = sorted(now / before for before, now in pairs)
    before, now = (statistics.median(times) for times in zip(*pairs, strict=True))
    detail = f"{now:.2f} and {before:.2f} ms; {ratios[0]:.2f} to {ratios[-1]:.2f}"
    return Figure(name, statistics.median(ratios), GOAL, detail=detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a folder with the earlier commit")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--turns", type=int, default=120, help="of each round")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    given = parser.parse_args()
    figures = measure(given.checkout, given.rounds, given.turns)
    show(figures)
    if given.json:
        save(figures, given.json)


if __name__ == "__main__":
    main()
