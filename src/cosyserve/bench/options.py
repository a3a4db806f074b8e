"""Everything that decides a run.

Knows nothing of commands, nor of what a run finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cosyserve.bench.client import Endpoint
from cosyserve.bench.items import Source
from cosyserve.bench.load import Load
from cosyserve.bench.triton import TritonEndpoint
from cosyserve.errors import InputError


@dataclass(frozen=True)
class BenchOptions:
    endpoint: Endpoint | TritonEndpoint
    load: Load
    source: Source
    requests: int | None = None  # None: each item of the source once
    save_audio: Path | None = None  # a folder

    def __post_init__(self) -> None:
        if self.requests is not None and self.requests < 1:
            raise InputError(f"the number of requests must be at least 1, got {self.requests}")
