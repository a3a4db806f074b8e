"""`cosyserve deploy engine flow`: the flow's estimator and the speaker encoder for TensorRT or
onnxruntime."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note
from cosyserve.settings import Settings


class FlowRuntime(StrEnum):
    """What an engine of the flow is for."""

    TENSORRT = "tensorrt"
    ONNXRUNTIME = "onnxruntime"


class FlowDtype(StrEnum):
    """A precision of TensorRT's."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def flow(
    model: Annotated[str, typer.Argument(help="A model: a folder, nano or test.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder of the engines, by default where `cosyserve serve` looks for them.",
        ),
    ] = None,
    runtime: Annotated[
        FlowRuntime, typer.Option(help="The runtime that is to compute the flow.")
    ] = FlowRuntime.TENSORRT,
    dtype: Annotated[
        FlowDtype,
        typer.Option(
            help="The precision of the flow in TensorRT; norms and softmax are float32, as is the "
            "speaker encoder. onnxruntime computes in float32."
        ),
    ] = FlowDtype.FLOAT16,
    max_rows: Annotated[
        int, typer.Option(help="Rows that TensorRT computes at once, two for each utterance.")
    ] = 8,
    max_frames: Annotated[
        int, typer.Option(help="Frames of a row, prompt and speech; 50 are a second.")
    ] = 3008,
    compute_capability: Annotated[
        str,
        typer.Option(
            metavar="X.Y",
            help="The GPUs that TensorRT-RTX builds for, e.g. 8.9; by default the one here.",
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Make engines again that are made already.")
    ] = False,
) -> None:
    """Build what TensorRT or onnxruntime needs to compute the flow and the speaker encoder, and try
    it."""
    from cosyserve.deploy.engine.flow import FlowOptions, build_engines

    options = FlowOptions(
        folder=output or Path(Settings.read().engines),
        runtime=runtime.value,
        precision=dtype.value,
        max_rows=max_rows,
        max_frames=max_frames,
        capability=compute_capability,
        force=force,
    )
    build_engines(model, options, lambda text: note.print(text, soft_wrap=True))
