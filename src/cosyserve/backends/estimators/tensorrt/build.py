"""From an ONNX graph to a TensorRT engine."""

from __future__ import annotations

from typing import Any

from cosyserve.backends.estimators.graphs import NetworkGraph, ShapeProfile
from cosyserve.backends.estimators.tensorrt.library import RTX, TensorRT
from cosyserve.errors import CheckpointError

WORKSPACE = 4 << 30  # bytes that a layer may have, as the original allows


def build_plan(
    library: TensorRT, graph: NetworkGraph, onnx: bytes, shapes: ShapeProfile, gpu: str
) -> bytes:
    """The engine, with the types that the ONNX file has; `gpu` as `TensorRT.gpu` gives it."""
    trt, logger = library.api, library.logger
    builder = trt.Builder(logger)
    strongly_typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(strongly_typed)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx):
        reasons = [parser.get_error(number).desc() for number in range(parser.num_errors)]
        raise CheckpointError(f"TensorRT can't read the graph {graph.name!r}: {reasons[0]:.300}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE)
    if library.name == RTX:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, gpu), 0)
    config.add_optimization_profile(_profile(builder, graph, shapes))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise CheckpointError(f"TensorRT can't build the graph {graph.name!r}: it says why above")
    return bytes(plan)


def _profile(builder: Any, graph: NetworkGraph, shapes: ShapeProfile) -> Any:
    profile = builder.create_optimization_profile()
    for name, axes in graph.inputs.items():
        sizes = (shapes.smallest, shapes.usual, shapes.largest)
        profile.set_shape(name, *(size.of(axes) for size in sizes))
    return profile
