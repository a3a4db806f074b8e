"""A run on record: its options, where it ran, its figures, every sample; as JSON."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cosyserve.bench.client import Endpoint
from cosyserve.bench.figures import Figures
from cosyserve.bench.items import Source
from cosyserve.bench.load import Load
from cosyserve.bench.sample import Sample
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.errors import InputError


@dataclass(frozen=True)
class BenchOptions:
    """Everything that decides a run."""

    endpoint: Endpoint | TritonEndpoint
    load: Load
    source: Source
    requests: int | None = None  # None: each item of the source once
    save_audio: Path | None = None  # a folder

    def __post_init__(self) -> None:
        if self.requests is not None and self.requests < 1:
            raise InputError(f"the number of requests must be at least 1, got {self.requests}")


@dataclass(frozen=True)
class Host:
    """The machine that ran the client."""

    system: str
    processor: str
    cores: int
    python: str


@dataclass(frozen=True)
class Report:
    """A finished run."""

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
    """Writes JSON, without the API key."""
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
            f"{path} is not a report of `cosyserve bench load`: {where}: {first['msg']}"
        ) from error
