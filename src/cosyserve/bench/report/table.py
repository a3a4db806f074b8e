"""Figures for people: a table of a run, and its ratios to an earlier one."""

from __future__ import annotations

from dataclasses import astuple

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from cosyserve.bench.figures import Figures
from cosyserve.bench.report.report import Report
from cosyserve.bench.statistics import Distribution

NOTHING = "–"


def run_table(report: Report) -> RenderableType:
    """Latencies, totals, and an example of each kind of failure."""
    parts = [_latencies(report.figures), _totals(report.figures)]
    if report.figures.failures:
        parts.append(_failures(report))
    return Group(*parts)


def baseline_table(now: Figures, then: Figures) -> RenderableType:
    table = Table("figure", "now", "baseline", "ratio")
    for column in table.columns[1:]:
        column.justify = "right"
    before, ratio = main_figures(then), ratios(now, then)
    for name, value in main_figures(now).items():
        table.add_row(name, *(number(x) for x in (value, before[name], ratio[name])))
    return table


def ratios(now: Figures, then: Figures) -> dict[str, float | None]:
    """Now / then for each main figure; None where one is missing or `then` is zero."""
    before = main_figures(then)
    return {
        name: value / past if value is not None and (past := before[name]) else None
        for name, value in main_figures(now).items()
    }


def main_figures(figures: Figures) -> dict[str, float | None]:
    """The figures by which runs are compared. Times in ms."""
    spreads = {
        "first audio": figures.first_audio,
        "first audible audio": figures.first_audible,
        "second chunk": figures.second_chunk,
        "total": figures.total,
        "worst underrun": figures.underrun,
    }
    named: dict[str, float | None] = {}
    for name, spread in spreads.items():
        named[f"{name} p50 (ms)"] = 1000 * spread.p50 if spread else None
        named[f"{name} p95 (ms)"] = 1000 * spread.p95 if spread else None
    return named | {
        "RTF": figures.rtf,
        "audio seconds per second": figures.audio_per_second,
        "C50": figures.c50,
        "C100": figures.c100,
        "C200": figures.c200,
    }


def _latencies(figures: Figures) -> Table:
    table = Table("", "mean", "p50", "p90", "p95", "p99")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("first audio (ms)", *_spread(figures.first_audio, 1000))
    table.add_row("first audible audio (ms)", *_spread(figures.first_audible, 1000))
    table.add_row("second chunk − first (ms)", *_spread(figures.second_chunk, 1000))
    table.add_row("total (ms)", *_spread(figures.total, 1000))
    table.add_row("worst underrun (ms)", *_spread(figures.underrun, 1000))
    table.add_row("RTF of a request", *_spread(figures.request_rtf, 1))
    return table


def _totals(figures: Figures) -> Table:
    continuity = figures.c50, figures.c100, figures.c200
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("requests", str(figures.requests))
    table.add_row("served", str(figures.served))
    table.add_row("wall time (s)", number(figures.wall_seconds))
    table.add_row("audio (s)", number(figures.audio_seconds))
    table.add_row("RTF", number(figures.rtf))
    table.add_row("audio seconds per second", number(figures.audio_per_second))
    table.add_row("C50 / C100 / C200", " / ".join(map(_share, continuity)))
    return table


def _failures(report: Report) -> Table:
    table = Table("failure", "count", "for example")
    examples = {s.failure.kind: s.failure.detail for s in report.samples if s.failure}
    for kind, count in report.figures.failures.items():
        table.add_row(kind, str(count), escape(examples[kind]))
    return table


def _spread(spread: Distribution | None, scale: float) -> list[str]:
    if spread is None:
        return [NOTHING] * 5
    return [number(scale * value) for value in astuple(spread)]


def number(value: float | None) -> str:
    """Three digits, or all of those before the point."""
    if value is None:
        return NOTHING
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.4g} %"
