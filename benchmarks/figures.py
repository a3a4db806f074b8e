"""What a benchmark found: figures with their goals, as a table and as JSON.

Knows no benchmark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cosyserve.bench.report.report import this_host


@dataclass(frozen=True)
class Figure:
    """`goal` is what the value must reach: at most, or at least with `at_least`."""

    name: str
    value: float
    goal: float
    unit: str = ""
    at_least: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def show(figures: Sequence[Figure]) -> None:
    table = Table("what", "found", "goal", "", "")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        table.add_row(
            figure.name,
            f"{figure.value:.4g} {figure.unit}",
            f"{sign} {figure.goal:g} {figure.unit}",
            "[green]reached[/green]" if figure.reached else "[red]missed[/red]",
            figure.detail,
        )
    Console().print(table)


def save(figures: Sequence[Figure], file: Path, **details: Any) -> None:
    """`details` are kept beside the figures."""
    found = [asdict(figure) | {"reached": figure.reached} for figure in figures]
    when = datetime.now(UTC).isoformat(timespec="seconds")
    report = {"when": when, "host": asdict(this_host()), "figures": found, **details}
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False), "utf-8")


def run(measure: Callable[[], list[Figure]], doc: str) -> None:
    """A benchmark as a program."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    figures = measure()
    show(figures)
    if options.json:
        save(figures, options.json)
