"""A real tritonserver with a rendered repository, on free ports."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.triton.process import Ports, TritonProcess

METRIC = re.compile(r'^(\w+)\{model="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)
GAUGES = {"cosyserve_requests", "cosyserve_lm_rows", "cosyserve_streams"}


@dataclass(frozen=True)
class Served:
    process: TritonProcess
    repository: Path
    voices: Path

    @property
    def grpc(self) -> str:
        return f"localhost:{self.process.ports.grpc}"

    @property
    def http(self) -> str:
        return f"localhost:{self.process.ports.http}"

    def metrics(self) -> dict[tuple[str, str], float]:
        """The server's metrics by name and model."""
        url = f"http://localhost:{self.process.ports.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = METRIC.findall(answer.read().decode())
        return {(name, model): float(value) for name, model, value in found}

    def held(self) -> dict[tuple[str, str], float]:
        """What the models hold at this moment, by gauge and model."""
        return {key: value for key, value in self.metrics().items() if key[0] in GAUGES}


@contextmanager
def serving(
    folder: Path,
    model: str = "test",
    *settings: str,
    models: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[Served]:
    """`model`: a model folder, or `test`; `settings`: key=value; `models`: those that are
    loaded, if not all; `options`: tritonserver's."""
    repository, voices = folder / "repository", folder / "voices"
    ports = Ports.free()
    render(TritonSettings.of([*settings, f"voices={voices}"], model_dir=model), repository)
    if models:
        loaded = [f"--load-model={name}" for name in models]
        options = [*options, "--model-control-mode=explicit", *loaded]
    process = TritonProcess(repository, ports, options)
    try:
        process.wait_ready()
        yield Served(process, repository, voices)
    finally:
        process.kill()  # to stop takes seconds, which tests of whole commands wait for
