"""Engines are made whole and proven, or not at all; a runtime that can't be used says why."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.backends.estimators import engines
from cosyserve.backends.estimators.engine_file import EngineFile
from cosyserve.backends.estimators.engines import open_engines
from cosyserve.backends.estimators.flow import flow_graphs
from cosyserve.backends.estimators.graphs import NetworkGraph, Sizes
from cosyserve.backends.estimators.onnx_runtime import OnnxGraph, OnnxRuntime
from cosyserve.backends.estimators.open import engine_precision, use_backend
from cosyserve.checkpoints.load import load_model
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import Graph
from tests.backends.estimators.flows import exported, small_flow


class Broken(OnnxRuntime):
    """Engines whose results are all multiplied by a number."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def make(self, graph: NetworkGraph) -> bytes:
        return exported("unet")[graph.name]

    def open(self, graph: NetworkGraph, engine: bytes) -> Graph:  # type: ignore[override]
        exact = OnnxGraph(engine)

        def compute(inputs: Mapping[str, Tensor]) -> list[Tensor]:
            return [self.factor * result for result in exact(inputs)]

        return compute


@pytest.fixture(scope="module")
def unet() -> Flow:
    return small_flow("unet")


@pytest.mark.parametrize(
    ("factor", "complaint"), [(float("nan"), "computes NaN in float32"), (1.05, "off by 5.0%")]
)
def test_an_engine_that_computes_something_else_is_not_kept(
    unet: Flow,
    tmp_path: Path,
    factor: float,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "TRIED", (Sizes(2, 20),))
    with pytest.raises(CheckpointError, match=f"{complaint}.*choose a dtype"):
        open_engines(flow_graphs(unet), Broken(factor), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_an_engine_that_was_damaged_is_named(unet: Flow, tmp_path: Path) -> None:
    file = OnnxRuntime().file(tmp_path, flow_graphs(unet)[0])
    file.write(b"damaged")
    with pytest.raises(CheckpointError, match=rf"{file.path}: .*remove it"):
        open_engines(flow_graphs(unet), OnnxRuntime(), tmp_path)


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EngineFile(tmp_path, "flow.whole", "ab", "float16", "tensorrt-10.1", "NVIDIA L20 (x)")
    assert file.path.name == "flow.whole.ab.float16.tensorrt-10.1.nvidia-l20-x.plan"

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        with pytest.raises(CheckpointError, match="No space left"):
            file.write(b"engine")
    assert list(tmp_path.iterdir()) == []
    file.write(b"engine")
    assert file.read() == b"engine"
    with pytest.raises(CheckpointError, match="can't be read"):
        EngineFile(tmp_path, "flow.chunk", "ab", "float16").read()
    nowhere = EngineFile(file.path / "below", "flow.chunk", "ab", "float16")
    with pytest.raises(CheckpointError, match="can't be written"), nowhere.locked():
        pass


def test_who_comes_second_waits_for_the_first(tmp_path: Path) -> None:
    file, inside = EngineFile(tmp_path, "flow.whole", "ab", "float16"), threading.Event()

    def enter() -> None:
        with file.locked():
            inside.set()

    second = threading.Thread(target=enter)
    with file.locked():
        second.start()
        assert not inside.wait(0.1)
    assert inside.wait(10)
    second.join()


@pytest.mark.parametrize(
    ("backend", "device", "complaint"),
    [
        ("onnxruntime", "cuda", "--device cpu"),
        ("tensorrt", "cpu", "needs an NVIDIA GPU"),
        ("tvm", "cpu", "ours, tensorrt, onnxruntime, got 'tvm'"),
    ],
)
def test_a_backend_that_can_not_be(
    backend: str, device: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model("test", device="cpu")
    on_device = type("Weight", (), {"device": torch.device(device)})()
    monkeypatch.setattr(Flow, "weight", on_device)
    with pytest.raises(InputError, match=complaint):
        use_backend(model, "test", backend, tmp_path, "auto")


def test_our_own_backend_makes_nothing(tmp_path: Path) -> None:
    model = load_model("test", device="cpu")
    before = model.need_token2wav()[0].estimator
    assert use_backend(model, "test", "ours", tmp_path / "none", "auto") is model
    assert model.need_token2wav()[0].estimator is before
    assert not (tmp_path / "none").exists()


def test_precisions_of_engines() -> None:
    names = ("auto", "float32", "float16", "bfloat16", "int8")
    assert [engine_precision(name) for name in names] == [
        *("float16", "float32", "float16", "bfloat16", "bfloat16")
    ]
