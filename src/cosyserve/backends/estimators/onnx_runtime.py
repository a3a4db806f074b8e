"""Graphs in onnxruntime, on the CPU and in float32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.backends.estimators.engine_file import EngineFile
from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.graphs import NetworkGraph
from cosyserve.checkpoints.onnx.encoders import open_session


class OnnxGraph:
    """Implements `Graph`."""

    def __init__(self, onnx: bytes) -> None:
        self._session = open_session(onnx, torch.get_num_threads())

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        arrays = {name: tensor.float().contiguous().numpy() for name, tensor in inputs.items()}
        return [torch.from_numpy(array) for array in self._session.run(None, arrays)]


class OnnxRuntime:
    """Implements `Runtime`; an engine is an ONNX file."""

    precision = "float32"
    device = torch.device("cpu")

    def file(self, folder: Path, graph: NetworkGraph) -> EngineFile:
        return EngineFile(folder, graph.name, graph.digest, self.precision, suffix="onnx")

    def make(self, graph: NetworkGraph) -> bytes:
        return to_onnx(graph)

    def open(self, graph: NetworkGraph, engine: bytes) -> OnnxGraph:
        return OnnxGraph(engine)
