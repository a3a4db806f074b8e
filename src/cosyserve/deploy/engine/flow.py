"""Engines of the flow and of the speaker encoder, built before a server needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from cosyserve.backends.estimators.engines import Report, Runtime, open_engines
from cosyserve.backends.estimators.flow import flow_graphs, flow_shapes
from cosyserve.backends.estimators.graphs import ShapeProfile
from cosyserve.backends.estimators.onnx_runtime import OnnxRuntime
from cosyserve.backends.estimators.open import ONNXRUNTIME, TOKEN2WAV, source_model
from cosyserve.backends.estimators.speaker import (
    SPEAKER_PRECISION,
    SPEAKER_SHAPES,
    speaker_graphs,
)
from cosyserve.backends.estimators.tensorrt.library import find_tensorrt
from cosyserve.backends.estimators.tensorrt.runtime import TensorRTRuntime
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
    shapes = flow_shapes(options.max_rows, options.max_frames)
    for_flow = _runtime(options, options.precision, shapes)
    for_speaker = _runtime(options, SPEAKER_PRECISION, SPEAKER_SHAPES)
    source = source_model(model, *TOKEN2WAV, "speaker_encoder")
    folder, force = options.folder, options.force
    flow, _ = source.need_token2wav()
    open_engines(flow_graphs(flow), for_flow, folder, report, force=force)
    open_engines(speaker_graphs(source), for_speaker, folder, report, force=force)


def _runtime(options: FlowOptions, precision: str, shapes: ShapeProfile) -> Runtime:
    if options.runtime == ONNXRUNTIME:
        if options.capability:
            raise InputError("--compute-capability is for --runtime tensorrt")
        return OnnxRuntime()
    if options.capability and not re.fullmatch(r"\d+\.\d", options.capability):
        raise InputError(f"--compute-capability is like 8.9, got {options.capability!r:.20}")
    library = find_tensorrt()
    device = torch.device("cuda") if torch.cuda.is_available() else None
    runtime = TensorRTRuntime(library, precision, shapes, device, options.capability)
    library.gpu(device, options.capability)  # which refuses what can't be built
    return runtime
