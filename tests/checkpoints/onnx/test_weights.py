from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from torch import Tensor, nn

from cosyserve.checkpoints.onnx.weights import match_weights, read_onnx
from cosyserve.errors import CheckpointError
from cosyserve.models.config import S3Config
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer
from tests.checkpoints.onnx.onnx_export import (
    TINY_CAMPLUS,
    TINY_S3,
    export_campplus,
    export_s3,
    randomised,
)


def read_s3(path: Path, config: S3Config = TINY_S3) -> dict[str, Tensor]:
    with torch.device("meta"):
        example = (torch.zeros(1, config.mels, 8), torch.tensor([8]))
        return match_weights(read_onnx(path), path, S3Tokenizer(config), example)


def read_campplus(path: Path) -> dict[str, Tensor]:
    with torch.device("meta"):
        example = (torch.zeros(1, 8, TINY_CAMPLUS.feat),)
        return match_weights(read_onnx(path), path, CamPlus(TINY_CAMPLUS), example)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(actual[key], value), key


@pytest.fixture(scope="module")
def tokenizer() -> S3Tokenizer:
    return randomised(S3Tokenizer(TINY_S3))


@pytest.fixture(scope="module")
def exported(tokenizer: S3Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "s3.onnx"
    export_s3(tokenizer, path)
    return path


@pytest.mark.parametrize(("opset", "optimise"), [(14, True), (17, True), (17, False)])
def test_tokenizer(tokenizer: S3Tokenizer, tmp_path: Path, opset: int, optimise: bool) -> None:
    path = tmp_path / "s3.onnx"
    export_s3(tokenizer, path, opset, optimise)
    decomposed = all(node.op_type != "LayerNormalization" for node in onnx.load(path).graph.node)
    assert decomposed == (opset < 17)
    assert_same(read_s3(path), tokenizer.state_dict())


def test_batch_norms_of_their_own(tmp_path: Path) -> None:
    encoder = randomised(CamPlus(TINY_CAMPLUS))
    export_campplus(encoder, tmp_path / "campplus.onnx", optimise=False)
    assert_same(read_campplus(tmp_path / "campplus.onnx"), encoder.state_dict())


def test_batch_norms_folded_into_convolutions(tmp_path: Path) -> None:
    encoder = randomised(CamPlus(TINY_CAMPLUS))
    export_campplus(encoder, tmp_path / "campplus.onnx", opset=11)
    unfolded = CamPlus(TINY_CAMPLUS)
    unfolded.load_state_dict(read_campplus(tmp_path / "campplus.onnx"))
    fbank = torch.randn(1, 60, TINY_CAMPLUS.feat)
    torch.testing.assert_close(unfolded.eval()(fbank), encoder(fbank), rtol=1e-4, atol=1e-5)


def test_names_and_constant_nodes_make_no_difference(
    tokenizer: S3Tokenizer, exported: Path, tmp_path: Path
) -> None:
    graph = (model := onnx.load(exported)).graph
    names = {tensor.name: f"w{i}" for i, tensor in enumerate(graph.initializer)}
    constants = [
        helper.make_node("Constant", [], [names[tensor.name]], value=tensor)
        for tensor in graph.initializer
    ]
    nodes = list(graph.node)
    for i, node in enumerate(nodes):
        node.name = f"n{i}"
        node.input[:] = [names.get(name, name) for name in node.input]
    del graph.initializer[:], graph.node[:]
    graph.node.extend(constants + nodes)
    onnx.save(model, tmp_path / "s3.onnx")
    assert_same(read_s3(tmp_path / "s3.onnx"), tokenizer.state_dict())


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_of_two_dimensional_inputs(tmp_path: Path, bias: bool) -> None:
    network = nn.Sequential(nn.Linear(3, 5, bias=bias), nn.LayerNorm(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, 3),), str(path := tmp_path / "g.onnx"), dynamo=False
        )
    state = match_weights(read_onnx(path), path, network, (torch.zeros(2, 3),))
    assert_same(state, network.state_dict())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (S3Config(16, 32, 2, 3, 5), "no layer norm .* for 'encoder.blocks.2.attn_ln'"),
        (S3Config(16, 32, 2, 1, 5), "node '.*' is a .* too many"),
        (S3Config(16, 64, 2, 2, 5), r"no convolution of shape \[64, 16, 3\] for 'encoder.conv1'"),
    ],
)
def test_another_network_is_refused(exported: Path, config: S3Config, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"{exported}: .*") as caught:
        read_s3(exported, config)
    caught.match(message)


def test_external_data_beside_the_file(
    tokenizer: S3Tokenizer, exported: Path, tmp_path: Path
) -> None:
    save_external(exported, tmp_path / "s3.onnx", "s3.data")
    assert (tmp_path / "s3.data").exists()
    assert_same(read_s3(tmp_path / "s3.onnx"), tokenizer.state_dict())


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "link"])
def test_external_data_elsewhere_are_refused(exported: Path, tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(10_000))
    (folder := tmp_path / "model").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    save_external(exported, path := folder / "s3.onnx", "s3.data")
    model = onnx.load(path, load_external_data=False)
    entries = model.graph.initializer[0].external_data
    next(entry for entry in entries if entry.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=f"{path}.*outside its folder.*{location}"):
        read_onnx(path)


def save_external(source: Path, target: Path, location: str) -> None:
    onnx.save(
        onnx.load(source),
        target,
        save_as_external_data=True,
        location=location,
        size_threshold=0,
    )


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing\.onnx"):
        read_onnx(tmp_path / "nothing.onnx")


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_broken_files_are_checkpoint_errors(exported: Path, data: st.DataObject) -> None:
    whole = exported.read_bytes()
    # Behind the graph stand a few bytes, like the version of its operators, which may be anything.
    cut = data.draw(st.integers(0, len(whole) - 128))
    junk = data.draw(st.binary(max_size=64))
    broken = exported.with_name("broken.onnx")
    broken.write_bytes(whole[:cut] + junk)
    with pytest.raises(CheckpointError, match=r"broken\.onnx"):
        read_s3(broken)
