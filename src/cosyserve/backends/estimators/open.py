"""A model whose flows' estimators and whose speaker encoder another runtime computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from cosyserve.backends.estimators.engines import Runtime, open_engines
from cosyserve.backends.estimators.flow import CHUNK, WHOLE, flow_graphs, flow_shapes
from cosyserve.backends.estimators.graphs import ShapeProfile
from cosyserve.backends.estimators.onnx_runtime import OnnxRuntime
from cosyserve.backends.estimators.speaker import (
    SPEAKER,
    SPEAKER_PRECISION,
    SPEAKER_SHAPES,
    ForeignSpeakerEncoder,
    speaker_graphs,
)
from cosyserve.backends.estimators.tensorrt.library import find_tensorrt
from cosyserve.backends.estimators.tensorrt.runtime import TensorRTRuntime
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.choices import FlowBackend
from cosyserve.errors import InputError
from cosyserve.models.config import DiTConfig
from cosyserve.models.encoders.prompt_encoders import SpeakerEncoder
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import ForeignEstimator

OURS, TENSORRT, ONNXRUNTIME = BACKENDS = get_args(FlowBackend)
TOKEN2WAV = "flow", "vocoder"  # a flow is never loaded alone


def use_backend(model: Model, name: str | Path, backend: str, engines: Path, dtype: str) -> Model:
    """The model, which is called `name`, with estimators and a speaker encoder that `backend`
    computes; `engines` is the folder that keeps what is made for it."""
    if backend == OURS:
        return model
    precision, shapes = engine_precision(dtype), flow_shapes()
    devices = [flow.weight.device for flow, _ in model.token2wavs]
    runtimes = [_runtime(backend, device, precision, shapes) for device in devices]
    if runtimes:
        source, _ = source_model(name, *TOKEN2WAV).need_token2wav()
        for (flow, _), runtime in zip(model.token2wavs, runtimes, strict=True):
            flow.decoder["estimator"] = open_estimator(source, runtime, engines)
    # Beside a flow, wherever the LM is: the backend is for the flow's device.
    device = devices[0] if devices else model.device
    runtime = _runtime(backend, device, SPEAKER_PRECISION, SPEAKER_SHAPES)
    return replace(model, speaker_encoder=open_speaker_encoder(model, runtime, engines))


def open_estimator(flow: Flow, runtime: Runtime, engines: Path) -> ForeignEstimator:
    """The estimator of a flow, whose weights are float32 on the CPU."""
    graphs, config = open_engines(flow_graphs(flow), runtime, engines), flow.config.estimator
    whole = graphs[WHOLE]
    assert whole is not None
    return ForeignEstimator(
        whole, graphs.get(CHUNK), config if isinstance(config, DiTConfig) else None
    )


def open_speaker_encoder(model: Model, runtime: Runtime, engines: Path) -> SpeakerEncoder | None:
    """The model's speaker encoder in `runtime`, or as it is if no engine can be made of it."""
    graph = open_engines(speaker_graphs(model), runtime, engines).get(SPEAKER)
    return ForeignSpeakerEncoder(graph, runtime.device) if graph else model.speaker_encoder


def source_model(name: str | Path, *parts: str) -> Model:
    """These parts of a model, of which engines are made, as exact as its folder has them."""
    model = load_model(name, device="cpu", dtype="float32", only=parts)
    for flow, _ in model.token2wavs:
        flow.requires_grad_(False)
    return model


def engine_precision(dtype: str) -> str:
    """The precision of a flow's TensorRT engine where a model has this dtype."""
    return {"auto": "float16", "int8": "bfloat16"}.get(dtype, dtype)


def _runtime(backend: str, device: torch.device, precision: str, shapes: ShapeProfile) -> Runtime:
    if backend == ONNXRUNTIME:
        if device.type != "cpu":
            raise InputError(
                "--flow-backend onnxruntime computes on the CPU: choose --device cpu, or tensorrt"
            )
        return OnnxRuntime()
    if backend != TENSORRT:
        raise InputError(f"flow backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if device.type != "cuda":
        raise InputError("--flow-backend tensorrt needs an NVIDIA GPU: choose --device cuda")
    return TensorRTRuntime(find_tensorrt(), precision, shapes, device)
