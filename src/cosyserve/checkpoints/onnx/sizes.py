"""The sizes of a prompt encoder, read off the convolutions of its ONNX file.

A file whose convolutions say nothing has the published sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cosyserve.checkpoints.config_data import check_int
from cosyserve.checkpoints.onnx.weights import read_onnx
from cosyserve.errors import CheckpointError
from cosyserve.models.config import CamPlusConfig, S3Config
from cosyserve.models.encoders.campplus import HEAD_SHRINKING, STEM_KERNEL

LAYER_CONVOLUTIONS = 4  # of a dense layer of CAM++
HEAD_SIZE = 64  # channels per attention head of every published tokenizer
MAX_CONVOLUTIONS = 1000  # CAM++ has 235


@dataclass(frozen=True)
class _Convolution:
    outputs: int
    inputs: int  # per group
    kernel: int
    group: int
    dilation: int


def s3_sizes(file: Path) -> S3Config:
    convolutions = _convolutions(file)
    memories = [c for c in convolutions if c.group > 1]
    if not memories:
        return S3Config()
    state = convolutions[0].outputs
    return S3Config(
        mels=convolutions[0].inputs,
        state=state,
        heads=max(1, state // HEAD_SIZE),
        layers=len(memories),
        fsmn_kernel=memories[0].kernel,
    )


def campplus_sizes(file: Path) -> CamPlusConfig:
    """A dense layer is four convolutions, one of them wider than one frame; a block ends in one
    convolution more; the last convolution gives the embedding."""
    convolutions = _convolutions(file)
    start = next((i for i, c in enumerate(convolutions) if c.kernel == STEM_KERNEL), None)
    if start is None:
        return CamPlusConfig()
    head, stem, rest = convolutions[0], convolutions[start], convolutions[start + 1 :]
    blocks: list[list[_Convolution]] = []  # the wide convolution of each layer
    last = -math.inf
    for i, convolution in enumerate(rest):
        if convolution.kernel > 1:
            if i - last > LAYER_CONVOLUTIONS:
                blocks.append([])
            blocks[-1].append(convolution)
            last = i
    if not blocks:
        return CamPlusConfig()
    wide = blocks[0][0]
    return CamPlusConfig(
        feat=stem.inputs // head.outputs * HEAD_SHRINKING,
        embedding=rest[-1].outputs,
        head_channels=head.outputs,
        init_channels=stem.outputs,
        growth=wide.outputs,
        bn_size=wide.inputs // wide.outputs,
        block_layers=tuple(map(len, blocks)),
        dilations=tuple(block[0].dilation for block in blocks),
        kernel=wide.kernel,
    )


def _convolutions(file: Path) -> list[_Convolution]:
    """The convolutions of a file, in the order in which it runs them."""
    graph = read_onnx(file).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    convolutions = []
    for node in graph.node:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant" and "value" in attributes:
            shapes.update((output, tuple(attributes["value"].t.dims)) for output in node.output)
        weights = [shapes[name] for name in node.input if len(shapes.get(name, ())) >= 3]
        if node.op_type == "Conv" and weights:
            outputs, inputs, *kernel = weights[0]
            group = attributes["group"].i if "group" in attributes else 1
            dilations = attributes["dilations"].ints if "dilations" in attributes else [1]
            sizes = (outputs, inputs, kernel[-1], group, [1, *dilations][-1])
            where = f"{file}: '{node.name}'"
            convolutions.append(_Convolution(*(check_int(size, where) for size in sizes)))
    if len(convolutions) > MAX_CONVOLUTIONS:
        raise CheckpointError(f"{file}: {len(convolutions)} convolutions: not a prompt encoder")
    return convolutions
