"""Graphs as TensorRT engines, built for one GPU in one precision."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from cosyserve.backends.estimators.engine_file import EngineFile
from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.graphs import NetworkGraph, ShapeProfile
from cosyserve.backends.estimators.tensorrt.build import build_plan
from cosyserve.backends.estimators.tensorrt.graph import TensorRTGraph
from cosyserve.backends.estimators.tensorrt.library import TensorRT


@dataclass(frozen=True)
class TensorRTRuntime:
    """Implements `Runtime`."""

    library: TensorRT
    precision: str
    shapes: ShapeProfile
    device: torch.device | None  # None: engines are built here, and run elsewhere
    capability: str = ""  # of TensorRT-RTX's engines; empty: the device's

    @property
    def gpu(self) -> str:
        return self.library.gpu(self.device, self.capability)

    def file(self, folder: Path, graph: NetworkGraph) -> EngineFile:
        version = self.library.version
        return EngineFile(folder, graph.name, graph.digest, self.precision, version, self.gpu)

    def make(self, graph: NetworkGraph) -> bytes:
        onnx = to_onnx(graph.cast(getattr(torch, self.precision)))
        with nullcontext() if self.device is None else torch.cuda.device(self.device):
            return build_plan(self.library, graph, onnx, self.shapes, self.gpu)

    def open(self, graph: NetworkGraph, engine: bytes) -> TensorRTGraph | None:
        if self.device is None or self.capability:
            return None
        return TensorRTGraph(self.library, engine, graph, self.device)
