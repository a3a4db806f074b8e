"""What is kept of a run: its options, where it ran, its figures, every sample; as JSON.

Knows nothing of tables and plots.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cosyserve.bench.figures import Figures
from cosyserve.bench.options import BenchOptions
from cosyserve.bench.sample import Sample
from cosyserve.errors import InputError


@dataclass(frozen=True)
class Host:
    """The machine that ran the client."""

    system: str
    processor: str
    cores: int
    python: str


@dataclass(frozen=True)
class Report:
    version: str  # of cosyserve
    started: str  # ISO 8601
    options: BenchOptions
    host: Host
    figures: Figures
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class _Baseline:
    """The part of a report that later versions promise to read."""

    figures: Figures


def this_host() -> Host:
    return Host(
        system=platform.platform(),
        processor=_processor(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
    )


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    for line in facts.read_text("utf-8").splitlines() if facts.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def write_report(report: Report, path: Path) -> None:
    """As JSON, without the API key."""
    secret = {"options": {"endpoint": {"api_key"}}}
    data = TypeAdapter(Report).dump_json(report, indent=1, exclude=secret)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error


def read_baseline(path: Path) -> Figures:
    """The figures of an earlier report."""
    try:
        return TypeAdapter(_Baseline).validate_json(path.read_bytes()).figures
    except OSError as error:
        raise InputError(f"the baseline {path} can't be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"{path} is not a report of `cosyserve bench`: {where}: {first['msg']}"
        ) from error
