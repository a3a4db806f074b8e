"""The figures of conversations, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table

from cosyserve.bench.client import Endpoint
from cosyserve.bench.figures import Figures, figures
from cosyserve.bench.live.conversation import Talker, Turn
from cosyserve.bench.live.dialects import DIALECTS
from cosyserve.bench.report.report import Host
from cosyserve.bench.report.table import number
from cosyserve.bench.statistics import Distribution, distribution
from cosyserve.errors import InputError


@dataclass(frozen=True)
class LiveOptions:
    """Everything that decides a run."""

    endpoint: Endpoint
    dialects: tuple[str, ...] = tuple(DIALECTS)
    talker: Talker = field(default_factory=Talker)
    conversations: int = 4  # in each dialect
    turns: int = 5  # of each conversation
    concurrency: int = 1  # conversations at once
    language: str = "en"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.dialects:
            if name not in DIALECTS:
                known = ", ".join(DIALECTS)
                raise InputError(f"no dialect {name!r:.40}; there are {known}")
        if min(self.conversations, self.turns, self.concurrency) < 1:
            raise InputError("conversations, turns and concurrency must be at least 1")


@dataclass(frozen=True)
class LiveFigures:
    """Turns in one dialect. Times are in seconds, from the first word on."""

    turns: Figures  # interrupted ones included, as far as they were heard
    interrupted: int
    stop: Distribution | None  # from an interruption to its confirmation
    spoken_error: Distribution | None = None  # words, at an interruption; None: they are not told


@dataclass(frozen=True)
class LiveReport:
    """A finished run."""

    version: str  # of cosyserve
    started: str  # ISO 8601
    options: LiveOptions
    host: Host
    figures: dict[str, LiveFigures]  # by dialect
    left: dict[str, int] | None  # sessions that the server still has; None: it doesn't tell


def live_figures(turns: Sequence[Turn], whole: Mapping[str, Turn]) -> LiveFigures:
    """`whole`: texts of interrupted turns, spoken to their ends, by their ids."""
    stops = [turn.stopped for turn in turns if turn.stopped is not None]
    errors = [
        abs(turn.spoken - sum(end <= turn.heard for end in whole[turn.sample.id].word_ends))
        for turn in turns
        if turn.stopped is not None and turn.spoken is not None and turn.sample.id in whole
    ]
    samples = [turn.sample for turn in turns]
    return LiveFigures(figures(samples), len(stops), distribution(stops), distribution(errors))


def live_table(report: LiveReport) -> RenderableType:
    table = Table("", *report.figures)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [_column(found) for found in report.figures.values()]
    for name in rows[0]:
        table.add_row(name, *(row[name] for row in rows))
    left = "the server doesn't tell which sessions it has"
    if report.left is not None:
        said = ", ".join(f"{name} {count}" for name, count in report.left.items())
        left = f"sessions left: {said or 'none'}"
    return Group(table, left)


def write_live_report(report: LiveReport, path: Path) -> None:
    """Writes JSON, without the API key."""
    secret = {"options": {"endpoint": {"api_key"}}}
    data = TypeAdapter(LiveReport).dump_json(report, indent=1, exclude=secret)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error


def _column(found: LiveFigures) -> dict[str, str]:
    turns = found.turns
    failures = ", ".join(f"{count} {kind}" for kind, count in turns.failures.items())
    c100 = turns.c100
    return {
        "turns": str(turns.requests),
        "interrupted": str(found.interrupted),
        "failures": failures or "0",
        "first audio, p50 / p95 (ms)": _pair(turns.first_audio),
        "first audible audio, p50 / p95 (ms)": _pair(turns.first_audible),
        "worst underrun, p50 / p95 (ms)": _pair(turns.underrun),
        "C100": number(None) if c100 is None else f"{100 * c100:.4g} %",
        "stop, p50 / p95 (ms)": _pair(found.stop),
        "words off at an interruption, mean": _mean(found.spoken_error),
    }


def _mean(spread: Distribution | None) -> str:
    return number(None if spread is None else spread.mean)


def _pair(spread: Distribution | None) -> str:
    if spread is None:
        return number(None)
    return f"{number(1000 * spread.p50)} / {number(1000 * spread.p95)}"
