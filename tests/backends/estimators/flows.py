"""Small flows of every kind, with weights that matter."""

from __future__ import annotations

from functools import cache

from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.flow import flow_graphs
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
)
from cosyserve.models.flow.flow import Flow
from tests.golden.fill import fill
from tests.golden.weights import filled_flow

TOKENS = 50
CONFORMER = EncoderConfig(64, 4, 96, 2, 1)
CONFIGS = {
    "unet": (CONFORMER, UNetConfig("unet", 32, 2, 16, 1, 1)),
    "dit": (CONFORMER, DiTConfig("dit", 32, 2, 2, 16)),
    "rotary_dit": (LookaheadConfig(channels=32), RotaryDiTConfig("rotary_dit", 32, 2, 2, 16)),
}


@cache
def exported(kind: str) -> dict[str, bytes]:
    """The graphs of such a flow as ONNX, by their names."""
    return {graph.name: to_onnx(graph) for graph in flow_graphs(small_flow(kind))}


def small_flow(kind: str) -> Flow:
    encoder, estimator = CONFIGS[kind]
    config = FlowConfig(encoder, estimator, speech_tokens=TOKENS, steps=3)
    return filled_flow(config, 0, fill).requires_grad_(False)
