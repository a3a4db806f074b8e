"""Engines of the flow, built before a server needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from cosyserve.backends.estimators.engines import Report, Runtime, open_engines
from cosyserve.backends.estimators.graphs import ShapeProfile
from cosyserve.backends.estimators.onnx_runtime import OnnxRuntime
from cosyserve.backends.estimators.open import ONNXRUNTIME, source_flow
from cosyserve.backends.estimators.tensorrt_library import find_tensorrt
from cosyserve.backends.estimators.tensorrt_runtime import TensorRTRuntime
from cosyserve.errors import InputError


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    folder: Path
    runtime: str
    precision: str
    max_rows: int
    max_frames: int
    capability: str  # empty: that of the GPU here
    force: bool


def build_engines(model: str, options: FlowOptions, report: Report) -> None:
    """Makes what is not in the folder yet; what can run here is tried before it is written."""
    runtime = _runtime(options)
    open_engines(source_flow(model), runtime, options.folder, report, force=options.force)


def _runtime(options: FlowOptions) -> Runtime:
    if options.runtime == ONNXRUNTIME:
        if options.capability:
            raise InputError("--compute-capability is for --runtime tensorrt")
        return OnnxRuntime()
    if options.capability and not re.fullmatch(r"\d+\.\d", options.capability):
        raise InputError(f"--compute-capability is like 8.9, got {options.capability!r:.20}")
    shapes = ShapeProfile.upto(options.max_rows, options.max_frames)
    library = find_tensorrt()
    device = torch.device("cuda") if torch.cuda.is_available() else None
    runtime = TensorRTRuntime(library, options.precision, device, options.capability, shapes)
    library.gpu(device, options.capability)  # which refuses what can't be built
    return runtime
