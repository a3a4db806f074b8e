from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from cosyserve.checkpoints.onnx.sizes import MAX_CONVOLUTIONS, campplus_sizes, s3_sizes
from cosyserve.errors import CheckpointError
from cosyserve.models.config import CamPlusConfig, S3Config
from tests.published import CAMPLUS, S3

SIZES = (s3_sizes, campplus_sizes)


def write(file: Path, shapes: list[tuple[int, ...]], **attributes: Any) -> Path:
    """A file of convolutions with weights of these shapes, and no numbers in them."""
    weights = [
        onnx.TensorProto(name=f"w{i}", dims=shape, data_type=1) for i, shape in enumerate(shapes)
    ]
    nodes = [
        onnx.helper.make_node("Conv", ["x", f"w{i}"], [f"y{i}"], f"conv{i}", **attributes)
        for i in range(len(shapes))
    ]
    graph = onnx.GraphProto(node=nodes, initializer=weights)
    file.write_bytes(onnx.ModelProto(graph=graph).SerializeToString())
    return file


def test_sizes_of_exported_encoders(cosyvoice2_folder: Path) -> None:
    assert s3_sizes(cosyvoice2_folder / "speech_tokenizer_v2.onnx") == S3
    assert campplus_sizes(cosyvoice2_folder / "campplus.onnx") == CAMPLUS


@pytest.mark.parametrize("context_first", [False, True])
def test_a_dense_layer_may_run_its_convolutions_in_either_order(
    context_first: bool, tmp_path: Path
) -> None:
    """The published file runs the wide convolution of a layer before those of its context."""
    wide, context = [(4, 8, 3)], [(4, 8, 1), (4, 4, 1)]
    layer = [(8, 8, 1), *(context + wide if context_first else wide + context)]
    shapes = [(4, 1, 3, 3), (8, 40, 5), *layer, *layer, (8, 16, 1), *layer, (6, 12, 1), (192, 9, 1)]
    actual = campplus_sizes(write(tmp_path / "c.onnx", shapes))
    assert (actual.block_layers, actual.embedding, actual.feat) == ((2, 1), 192, 80)


def test_files_that_say_nothing_have_the_published_sizes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.onnx", [])
    assert (s3_sizes(file), campplus_sizes(file)) == (S3Config(), CamPlusConfig())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("shape", [(0, 1, 5), (-1, 1, 5), (4, 10**12, 5), (4, 1, 0)])
def test_absurd_shapes_are_refused(sizes: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a\.onnx: 'conv0' must be a whole number"):
        sizes(write(tmp_path / "a.onnx", [shape]))


@pytest.mark.parametrize("sizes", SIZES)
def test_nodes_without_inputs_and_endless_files(sizes: Any, tmp_path: Path) -> None:
    graph = onnx.GraphProto(node=[onnx.NodeProto(op_type=op) for op in ("Conv", "Constant")])
    (tmp_path / "a.onnx").write_bytes(onnx.ModelProto(graph=graph).SerializeToString())
    assert sizes(tmp_path / "a.onnx") in (S3Config(), CamPlusConfig())
    many = write(tmp_path / "b.onnx", [(4, 1, 5)] * (MAX_CONVOLUTIONS + 1), dilations=[2])
    with pytest.raises(CheckpointError, match=r"b\.onnx: 1001 convolutions"):
        sizes(many)
