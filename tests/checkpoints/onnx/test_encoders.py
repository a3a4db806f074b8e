from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch

from cosyserve.checkpoints.onnx import encoders
from cosyserve.checkpoints.onnx.encoders import (
    OnnxSpeakerEncoder,
    OnnxSpeechTokenizer,
    load_speaker_encoder,
    load_speech_tokenizer,
)
from cosyserve.errors import CheckpointError
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.prompt_encoders import TorchSpeakerEncoder, TorchSpeechTokenizer
from cosyserve.models.encoders.s3 import S3Tokenizer
from tests.checkpoints.onnx.onnx_export import (
    TINY_CAMPLUS,
    TINY_S3,
    export_campplus,
    export_s3,
    randomised,
)

MEL = np.random.default_rng(1).standard_normal((TINY_S3.mels, 50), np.float32)
FBANK = np.random.default_rng(1).standard_normal((70, TINY_CAMPLUS.feat), np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_s3(randomised(S3Tokenizer(TINY_S3)), folder / "s3.onnx")
    export_campplus(randomised(CamPlus(TINY_CAMPLUS)), folder / "campplus.onnx")
    return folder


@pytest.fixture
def s3_path(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(exported / "s3.onnx", tmp_path))


@pytest.fixture
def campplus_path(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(exported / "campplus.onnx", tmp_path))


def change_operation(path: Path, old: str, new: str) -> None:
    """The same weights, but they compute something else."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == old:
            node.op_type = new
    onnx.save(model, path)


def test_proven_weights_run_in_torch(
    s3_path: Path, campplus_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = load_speech_tokenizer(s3_path, TINY_S3)
    encoder = load_speaker_encoder(campplus_path, TINY_CAMPLUS)
    assert isinstance(tokenizer, TorchSpeechTokenizer)
    assert isinstance(encoder, TorchSpeakerEncoder)
    assert not caplog.records
    tokens, embedding = tokenizer(MEL), encoder(FBANK)
    assert (tokens.dtype, tokens.shape) == (np.int32, (13,))
    assert (embedding.dtype, embedding.shape) == (np.float32, (TINY_CAMPLUS.embedding,))


def test_proven_weights_can_be_saved(s3_path: Path, campplus_path: Path) -> None:
    tokenizer = load_speech_tokenizer(s3_path, TINY_S3)
    encoder = load_speaker_encoder(campplus_path, TINY_CAMPLUS)
    assert isinstance(tokenizer, TorchSpeechTokenizer)
    assert isinstance(encoder, TorchSpeakerEncoder)
    for module in (tokenizer.module, encoder.module):
        saved = safetensors.torch.load(safetensors.torch.save(module.state_dict()))
        module.load_state_dict(saved)


def test_unproven_weights_run_through_onnxruntime(
    s3_path: Path, campplus_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_torch = load_speech_tokenizer(s3_path, TINY_S3)(MEL)
    change_operation(s3_path, "Tanh", "Sin")
    change_operation(campplus_path, "Sigmoid", "Tanh")
    tokenizer = load_speech_tokenizer(s3_path, TINY_S3)
    encoder = load_speaker_encoder(campplus_path, TINY_CAMPLUS)
    assert isinstance(tokenizer, OnnxSpeechTokenizer)
    assert isinstance(encoder, OnnxSpeakerEncoder)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert f"onnxruntime: {s3_path}: torch gives" in caplog.messages[0]
    assert f"onnxruntime: {campplus_path}: torch's embedding is off" in caplog.messages[1]
    tokens, embedding = tokenizer(MEL), encoder(FBANK)
    assert (tokens.dtype, tokens.shape) == (np.int32, in_torch.shape)
    assert (embedding.dtype, embedding.shape) == (np.float32, (TINY_CAMPLUS.embedding,))


def test_another_network_runs_through_onnxruntime(
    s3_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = load_speech_tokenizer(s3_path, replace(TINY_S3, layers=3))
    assert isinstance(tokenizer, OnnxSpeechTokenizer)
    assert "for 'encoder.blocks.2" in caplog.messages[0]
    expected = load_speech_tokenizer(s3_path, TINY_S3)(MEL)
    assert np.array_equal(tokenizer(MEL), expected)


def test_files_of_another_kind_are_refused(s3_path: Path, campplus_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"campplus\.onnx"):
        load_speech_tokenizer(campplus_path, TINY_S3)
    with pytest.raises(CheckpointError, match=r"s3\.onnx"):
        load_speaker_encoder(s3_path, TINY_CAMPLUS)
    with pytest.raises(CheckpointError, match=r"campplus\.onnx"):
        load_speaker_encoder(campplus_path, replace(TINY_CAMPLUS, embedding=13))


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"broken\.onnx"):
        load_speech_tokenizer(tmp_path / "broken.onnx")


@pytest.mark.server
def test_importing_needs_no_onnx() -> None:
    code = (
        "import sys, cosyserve.checkpoints.onnx.encoders;"
        "sys.exit(bool({'onnx', 'onnxruntime'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def endless(path: Path) -> None:
    """A speaker encoder that counts to 2^62 first."""
    number, yes = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Add", ["count", "count"], ["more"]),
            onnx.helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "body",
        [
            onnx.helper.make_tensor_value_info("turn", number, []),
            onnx.helper.make_tensor_value_info("go_on", yes, []),
            onnx.helper.make_tensor_value_info("count", onnx.TensorProto.FLOAT, None),
        ],
        [
            onnx.helper.make_tensor_value_info("still", yes, []),
            onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, None),
        ],
    )
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Loop", ["turns", "begin", "features"], ["embedding"], body=body)],
        "endless",
        [onnx.helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, [1, None, 80])],
        [onnx.helper.make_tensor_value_info("embedding", onnx.TensorProto.FLOAT, None)],
        [
            onnx.helper.make_tensor("turns", number, [], [2**62]),
            onnx.helper.make_tensor("begin", yes, [], [True]),
        ],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def test_a_graph_that_never_ends_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "ONNX_SECONDS", 0.3)
    endless(tmp_path / "endless.onnx")
    with pytest.raises(CheckpointError, match=r"endless\.onnx"):
        load_speaker_encoder(tmp_path / "endless.onnx")
