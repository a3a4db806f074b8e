"""A model whose flows' estimators are computed by another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import torch

from cosyserve.backends.estimators.engines import Runtime, open_engines
from cosyserve.backends.estimators.onnx_runtime import OnnxRuntime
from cosyserve.backends.estimators.tensorrt_library import find_tensorrt
from cosyserve.backends.estimators.tensorrt_runtime import TensorRTRuntime
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.choices import FlowBackend
from cosyserve.errors import InputError
from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import ForeignEstimator

OURS, TENSORRT, ONNXRUNTIME = BACKENDS = get_args(FlowBackend)


def use_backend(model: Model, name: str | Path, backend: str, engines: Path, dtype: str) -> None:
    """Has `backend` compute the estimators of the model, which is called `name`; `engines` is the
    folder that keeps what is made for it."""
    if backend == OURS:
        return
    runtimes = [_runtime(backend, flow.weight.device, dtype) for flow, _ in model.token2wavs]
    source = source_flow(name)
    for (flow, _), runtime in zip(model.token2wavs, runtimes, strict=True):
        flow.decoder["estimator"] = open_estimator(source, runtime, engines)


def open_estimator(flow: Flow, runtime: Runtime, engines: Path) -> ForeignEstimator:
    """The estimator of a flow, whose weights are float32 on the CPU."""
    graphs, config = open_engines(flow, runtime, engines), flow.config.estimator
    whole = graphs["whole"]
    assert whole is not None
    return ForeignEstimator(
        whole, graphs.get("chunk"), config if isinstance(config, DiTConfig) else None
    )


def source_flow(name: str | Path) -> Flow:
    """The flow that engines are made of: a model's, as exact as its folder has it."""
    model = load_model(name, device="cpu", dtype="float32", only=("flow", "vocoder"))
    return model.need_token2wav()[0].requires_grad_(False)


def engine_precision(dtype: str) -> str:
    """The precision of a TensorRT engine where a model has this dtype."""
    return {"auto": "float16", "int8": "bfloat16"}.get(dtype, dtype)


def _runtime(backend: str, device: torch.device, dtype: str) -> Runtime:
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
    return TensorRTRuntime(find_tensorrt(), engine_precision(dtype), device)
