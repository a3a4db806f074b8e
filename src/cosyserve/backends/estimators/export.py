"""A graph as an ONNX file."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from cosyserve.backends.estimators.graphs import NetworkGraph, Sizes

OPSET = 18
TRACED = Sizes(2, 10, 6)


@torch.inference_mode()
def to_onnx(graph: NetworkGraph) -> bytes:
    """The graph in the precision of its weights, all its named axes open."""
    example = graph.example(TRACED)
    axes = {
        name: {number: axis for number, axis in enumerate(of) if isinstance(axis, str)}
        for name, of in (*graph.inputs.items(), *graph.outputs.items())
    }
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        # The tracer is deprecated, and warns of sizes that it takes for constants: those are. Its
        # successor takes 15 to 50 s for the smallest model where this one takes 2 (torch 2.13).
        warnings.simplefilter("ignore")
        file = Path(folder) / "graph.onnx"
        torch.onnx.export(
            graph.network,
            tuple(example.values()),
            file,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
        return file.read_bytes()
