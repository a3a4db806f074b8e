"""The speaker encoder in another runtime hears what it hears in torch, in one call for each
length."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.audio.features import SPEECH_RATE, kaldi_fbank
from cosyserve.backends.estimators import open as opening
from cosyserve.backends.estimators.engines import Runtime, open_engines
from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.graphs import NetworkGraph, ShapeProfile, Sizes
from cosyserve.backends.estimators.onnx_runtime import OnnxGraph, OnnxRuntime
from cosyserve.backends.estimators.open import open_speaker_encoder, use_backend
from cosyserve.backends.estimators.speaker import (
    SPEAKER,
    SPEAKER_PRECISION,
    SPEAKER_SHAPES,
    ForeignSpeakerEncoder,
    speaker_graphs,
)
from cosyserve.backends.estimators.tensorrt.graph import TensorRTGraph
from cosyserve.backends.estimators.tensorrt.library import RTX, TensorRT
from cosyserve.backends.estimators.tensorrt.runtime import TensorRTRuntime
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.parts import Parts
from cosyserve.checkpoints.prepare import prepare
from cosyserve.contracts import MAX_PROMPT_SECONDS, Floats
from cosyserve.errors import CosyError, InputError
from cosyserve.models.config import CamPlusConfig, ModelConfig
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.prompt_encoders import SpeakerEncoder, TorchSpeakerEncoder
from tests.backends.estimators.tensorrt_stand_in import Engine, stand_in, use_streams
from tests.golden.encoders_case import filled
from tests.golden.fill import fill

CPU = torch.device("cpu")
CONFIGS = {
    "small": CamPlusConfig(
        head_channels=4, init_channels=16, growth=8, bn_size=2, block_layers=(2, 2, 2)
    ),
    "full": CamPlusConfig(),
}


@cache
def encoder(size: str) -> TorchSpeakerEncoder:
    network = filled(CamPlus(CONFIGS[size]), 0, fill)
    assert isinstance(network, CamPlus)
    return TorchSpeakerEncoder(network.requires_grad_(False))


def listening(speaker: SpeakerEncoder | None, config: CamPlusConfig = CONFIGS["small"]) -> Model:
    """A model that has a speaker encoder alone."""
    model = assemble(Parts(ModelConfig(speaker_encoder=config)))
    return replace(model, speaker_encoder=speaker)


def graph_of(speaker: SpeakerEncoder, config: CamPlusConfig = CONFIGS["small"]) -> NetworkGraph:
    (graph,) = speaker_graphs(listening(speaker, config))
    return graph


@cache
def exported(size: str) -> bytes:
    return to_onnx(graph_of(encoder(size), CONFIGS[size]))


def fbanks(*lengths: int) -> list[Floats]:
    random = np.random.default_rng(sum(lengths))
    return [random.standard_normal((length, 80), np.float32) for length in lengths]


def assert_same(ours: Sequence[Floats], wanted: Sequence[Floats]) -> None:
    assert len(ours) == len(wanted)
    for embedding, exact in zip(ours, wanted, strict=True):
        assert embedding.shape == exact.shape
        assert embedding.dtype == np.float32
        assert np.linalg.norm(embedding - exact) < 1e-5 * np.linalg.norm(exact)


# Context segments have 100 frames, of which the network has half as many.
BATCHES = [(1,), (4,), (106,) * 2, (120,) * 6, (199,), (200,), (201,), (500,), (7, 301, 48)]


@pytest.mark.parametrize("lengths", BATCHES, ids=str)
def test_onnxruntime_hears_what_torch_does(lengths: tuple[int, ...]) -> None:
    ours, wanted = ForeignSpeakerEncoder(OnnxGraph(exported("small")), CPU), encoder("small")
    rows = fbanks(*lengths)
    assert_same(ours.batch(rows), wanted.batch(rows))
    assert_same([ours(rows[0])], [wanted(rows[0])])


def test_in_full_size_too() -> None:
    ours, wanted = ForeignSpeakerEncoder(OnnxGraph(exported("full")), CPU), encoder("full")
    for lengths in ((106, 106), (48,), (301,)):
        assert_same(ours.batch(fbanks(*lengths)), wanted.batch(fbanks(*lengths)))


def test_a_row_does_not_depend_on_its_batch() -> None:
    """Nor is one computed with padding, which the graph would take for speech."""
    shapes: list[tuple[int, ...]] = []
    graph = OnnxGraph(exported("small"))

    def spied(inputs: Mapping[str, Tensor]) -> list[Tensor]:
        shapes.append(tuple(inputs["input"].shape))
        return graph(inputs)

    ours, rows = ForeignSpeakerEncoder(spied, CPU), fbanks(93, 40, 93)
    assert_same(ours.batch(rows), [encoder("small")(row) for row in rows])
    assert shapes == [(1, 93, 80), (1, 40, 80), (1, 93, 80)]
    ours.batch(fbanks(40, 40))
    assert shapes[3:] == [(2, 40, 80)]


def test_an_export_leaves_the_network_as_it_was() -> None:
    """The exporter puts what it has exported back into the mode of training, if it was in it."""
    graph = graph_of(encoder("small"))
    example = graph.example(Sizes(2, 30))
    (before,) = graph.compute(example)
    to_onnx(graph)
    (after,) = graph.compute(example)
    assert torch.equal(before, after)
    assert not encoder("small").module.training


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> TensorRTRuntime:
    use_streams(monkeypatch)
    return TensorRTRuntime(stand_in(), SPEAKER_PRECISION, SPEAKER_SHAPES, CPU)


def test_a_tensorrt_engine_hears_one_recording_at_a_time(
    runtime: TensorRTRuntime, tmp_path: Path
) -> None:
    wanted, said = encoder("small"), list[str]()
    graph = open_engines([graph_of(wanted)], runtime, tmp_path, said.append)[SPEAKER]
    assert isinstance(graph, TensorRTGraph)
    assert re.search(r"tried: off by \d\.\de-0[78]", " ".join(said))
    assert isinstance(graph._engine, Engine)
    contexts = graph._engine.contexts
    assert (len(contexts), len(graph.contexts)) == (2, 2)
    ours = ForeignSpeakerEncoder(graph, CPU)
    for lengths in ((48,), (2998,), (100, 100, 100), (53, 7)):
        before = sum(len(context.runs) for context in contexts)
        assert_same(ours.batch(fbanks(*lengths)), wanted.batch(fbanks(*lengths)))
        assert sum(len(context.runs) for context in contexts) == before + len(lengths)
    with pytest.raises(InputError, match=r"has 3001 frames of 10 ms, .* takes 3000: cut it"):
        ours(fbanks(3001)[0])
    with pytest.raises(CosyError, match=r"'speaker' takes no input of \[1, 3, 80\]"):
        ours(fbanks(3)[0])
    assert len(graph.contexts) == 2


def test_an_engine_takes_the_longest_recording() -> None:
    longest = kaldi_fbank(np.zeros(round(MAX_PROMPT_SECONDS * SPEECH_RATE), np.float32))
    assert 2900 < len(longest) <= SPEAKER_SHAPES.largest.frames


def test_other_weights_are_another_file(runtime: TensorRTRuntime, tmp_path: Path) -> None:
    def name(of: CamPlus, config: CamPlusConfig = CONFIGS["small"]) -> str:
        return runtime.file(tmp_path, graph_of(TorchSpeakerEncoder(of), config)).path.name

    plain = encoder("small").module
    first = name(plain)
    assert re.fullmatch(
        r"speaker\.[0-9a-f]{16}\.float32\.tensorrt-10\.13\.3\.9\.nvidia-l20\.plan", first
    )
    assert name(copy.deepcopy(plain)) == first
    for key in ("xvector.tdnn.linear.weight", "xvector.dense.nonlinear.batchnorm.running_mean"):
        other = copy.deepcopy(plain)
        other.state_dict()[key].view(-1)[0].add_(1e-3)
        assert name(other) != first
    assert name(plain, replace(CONFIGS["small"], dilations=(1, 2, 3))) != first


def test_weights_in_half_precision_remain_so_beside_their_engine() -> None:
    """nano's are."""
    half = TorchSpeakerEncoder(copy.deepcopy(encoder("small").module).half())
    ours = ForeignSpeakerEncoder(OnnxGraph(to_onnx(graph_of(half))), CPU)
    assert {weight.dtype for weight in half.module.parameters()} == {torch.float16}
    exact = TorchSpeakerEncoder(copy.deepcopy(half.module).float())
    (row,) = fbanks(120)
    assert_same([ours(row)], [exact(row)])


def test_what_is_published_and_what_is_prepared_of_it_have_one_engine(
    token2wav_folder: Path, tmp_path: Path
) -> None:
    prepare([str(token2wav_folder)], tmp_path / "native", None, progress=False)
    graphs = []
    for folder in (token2wav_folder, tmp_path / "native"):
        model = load_model(folder, device="cpu", dtype="float32", only=("speaker_encoder",))
        graphs += speaker_graphs(model)
    first, second = graphs
    assert first.digest == second.digest


class FromFile:
    """A speaker encoder whose weights nobody knows, as of an ONNX file that torch can't compute."""

    def __call__(self, fbank: Floats) -> Floats:
        return fbank[0]

    def batch(self, fbanks: Sequence[Floats]) -> list[Floats]:
        return [self(fbank) for fbank in fbanks]


@pytest.mark.parametrize("unknown", [None, FromFile()])
def test_without_weights_in_torch_it_remains_what_it_is(
    unknown: FromFile | None, tmp_path: Path
) -> None:
    model = listening(unknown)
    assert speaker_graphs(model) == []
    assert open_speaker_encoder(model, OnnxRuntime(), tmp_path) is unknown
    assert list(tmp_path.iterdir()) == []


Asked = tuple[str, torch.device, str, int]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What runtimes are asked for; all are onnxruntime."""
    found: list[Asked] = []

    def runtime(backend: str, device: torch.device, precision: str, of: ShapeProfile) -> Runtime:
        found.append((backend, device, precision, of.largest.frames))
        return OnnxRuntime()

    monkeypatch.setattr(opening, "_runtime", runtime)
    return found


def test_a_backend_has_the_speaker_encoder_in_float32_beside_the_flow(
    asked: list[Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model("test", device="cpu")
    elsewhere = replace(model, device=torch.device("cuda:1"))  # the LM's
    found = use_backend(elsewhere, "test", "tensorrt", tmp_path, "auto")
    assert asked == [
        ("tensorrt", CPU, "float16", 3008),
        ("tensorrt", CPU, "float32", 3000),
    ]
    assert isinstance(found.speaker_encoder, ForeignSpeakerEncoder)
    assert isinstance(model.speaker_encoder, TorchSpeakerEncoder)
    (row,) = fbanks(77)
    assert_same([found.speaker_encoder(row)], [model.speaker_encoder(row)])


def test_a_model_that_only_listens_needs_no_flow(asked: list[Asked], tmp_path: Path) -> None:
    model = load_model("test", device="cpu", only=("speaker_encoder",))
    found = use_backend(model, "nowhere", "onnxruntime", tmp_path, "auto")
    assert isinstance(found.speaker_encoder, ForeignSpeakerEncoder)
    assert asked == [("onnxruntime", CPU, "float32", 3000)]


def test_tensorrt_rtx_builds_it_without_a_gpu(tmp_path: Path) -> None:
    rtx: Any = pytest.importorskip(RTX, reason="there is no TensorRT-RTX")
    runtime = TensorRTRuntime(TensorRT(RTX, rtx), SPEAKER_PRECISION, SPEAKER_SHAPES, None, "8.9")
    said: list[str] = []
    assert open_engines([graph_of(encoder("small"))], runtime, tmp_path, said.append) == {
        SPEAKER: None
    }
    assert any("not tried" in line for line in said)
    (plan,) = tmp_path.glob("speaker.*.float32.tensorrt-rtx-*.sm89.plan")
    assert plan.stat().st_size > 100_000
