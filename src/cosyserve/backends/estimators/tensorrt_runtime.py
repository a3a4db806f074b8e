"""Graphs as TensorRT engines, built for one GPU in one precision."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from cosyserve.backends.estimators.engine_file import EngineFile
from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.graphs import EstimatorGraph, ShapeProfile
from cosyserve.backends.estimators.tensorrt_build import build_plan
from cosyserve.backends.estimators.tensorrt_graph import TensorRTGraph
from cosyserve.backends.estimators.tensorrt_library import TensorRT

MAX_ROWS, MAX_FRAMES = 8, 3008  # four utterances of a minute, doubled for guidance
SHAPES = ShapeProfile.upto(MAX_ROWS, MAX_FRAMES)


@dataclass(frozen=True)
class TensorRTRuntime:
    """Implements `Runtime`."""

    library: TensorRT
    precision: str
    device: torch.device | None  # None: engines are built here, and run elsewhere
    capability: str = ""  # of TensorRT-RTX's engines; empty: the device's
    shapes: ShapeProfile = SHAPES

    @property
    def gpu(self) -> str:
        return self.library.gpu(self.device, self.capability)

    def file(self, folder: Path, model: str, graph: str) -> EngineFile:
        version = self.library.version
        return EngineFile(folder, f"flow.{graph}", model, self.precision, version, self.gpu)

    def make(self, graph: EstimatorGraph) -> bytes:
        onnx = to_onnx(graph.cast(getattr(torch, self.precision)))
        with nullcontext() if self.device is None else torch.cuda.device(self.device):
            return build_plan(self.library, graph, onnx, self.shapes, self.gpu)

    def open(self, graph: EstimatorGraph, engine: bytes) -> TensorRTGraph | None:
        if self.device is None or self.capability:
            return None
        return TensorRTGraph(self.library, engine, graph, self.device)
