"""Engines of graphs: found in their folder, or made and proven."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from cosyserve.backends.estimators.engine_file import EngineFile
from cosyserve.backends.estimators.graphs import NetworkGraph, Sizes
from cosyserve.errors import CheckpointError
from cosyserve.models.flow.foreign import Graph

TRIED = (Sizes(2, 20), Sizes(2, 500, 250))
# How far from torch's results in float32 those of an engine may be, as a share of their norm.
TOLERANCE = {"float32": 0.01, "float16": 0.03, "bfloat16": 0.1}

log = logging.getLogger(__name__)
Report = Callable[[str], None]


class Runtime(Protocol):
    """What makes engines of graphs, and runs them."""

    @property
    def precision(self) -> str: ...

    @property
    def device(self) -> torch.device | None: ...

    def file(self, folder: Path, graph: NetworkGraph) -> EngineFile:
        """Where the engine of the graph is kept."""
        ...

    def make(self, graph: NetworkGraph) -> bytes: ...

    def open(self, graph: NetworkGraph, engine: bytes) -> Graph | None:
        """None: it is for another machine."""
        ...


def open_engines(
    graphs: Sequence[NetworkGraph],
    runtime: Runtime,
    folder: Path,
    report: Report = log.info,
    *,
    force: bool = False,
) -> dict[str, Graph | None]:
    """The engines of graphs, whose weights are float32 on the CPU, by the names of these. What is
    not in the folder is made, with `force` all of it."""
    return {
        graph.name: _open(graph, runtime, runtime.file(folder, graph), report, force)
        for graph in graphs
    }


def _open(
    graph: NetworkGraph, runtime: Runtime, file: EngineFile, report: Report, force: bool
) -> Graph | None:
    with file.locked():
        if force or not file.path.is_file():
            report(f"making {file.path.name}: this may take minutes")
            engine = runtime.make(graph)
            opened = runtime.open(graph, engine)
            report(_proof(graph, opened, runtime))
            file.write(engine)
            report(f"written: {file.path}")
            return opened
    report(f"{file.path} is made already (`cosyserve deploy engine flow --force` makes it again)")
    try:
        return runtime.open(graph, file.read())
    except CheckpointError as error:
        raise CheckpointError(f"{file.path}: {error}: remove it to have it made again") from error


def _proof(graph: NetworkGraph, opened: Graph | None, runtime: Runtime) -> str:
    """What was found when the engine was tried. One that computes something else is no engine."""
    if opened is None:
        return "not tried: it is for another machine"
    worst = 0.0
    for sizes in TRIED:
        example = graph.example(sizes)
        found = opened({name: part.to(runtime.device) for name, part in example.items()})
        for ours, wanted in zip(found, graph.compute(example), strict=True):
            error = (ours.float().cpu() - wanted).norm() / wanted.norm()
            worst = max(worst, error.item() if error.isfinite() else float("inf"))
    if worst > TOLERANCE[runtime.precision]:
        what = "NaN" if worst == float("inf") else f"results off by {worst:.1%}"
        raise CheckpointError(
            f"the engine computes {what} in {runtime.precision}: choose a dtype with more room, "
            "bfloat16 or float32"
        )
    return f"tried: off by {worst:.1e} of torch's results"
