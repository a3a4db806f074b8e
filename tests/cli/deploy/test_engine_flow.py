"""`cosyserve deploy engine flow` as a person uses it, where there is no GPU."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyserve.backends.estimators.engines import TOLERANCE
from cosyserve.backends.estimators.flow import MAX_FRAMES, MAX_ROWS
from cosyserve.backends.estimators.graphs import NetworkGraph, Sizes
from cosyserve.backends.estimators.tensorrt.library import LIBRARIES
from cosyserve.backends.estimators.tensorrt.runtime import TensorRTRuntime
from cosyserve.cli import main
from cosyserve.cli.deploy.engine_flow import FlowDtype, flow

Command = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["cosyserve", "deploy", "engine", "flow", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr().err
        assert ended.value.code == status, shown
        return shown

    return run


def test_engines_are_made_tried_and_found_again(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_HOME", str(tmp_path))
    first = run("test", "--runtime", "onnxruntime")
    flow, speaker = sorted((tmp_path / "engines").glob("*.float32.onnx"))
    assert (flow.name[:11], speaker.name[:8]) == ("flow.whole.", "speaker.")
    assert f"written: {flow}" in first
    assert f"written: {speaker}" in first
    assert first.count("tried: off by") == 2
    again = run("test", "--runtime", "onnxruntime")
    assert f"{flow} is made already" in again
    assert f"{speaker} is made already" in again
    assert "written" not in again


def test_the_speaker_encoder_is_always_float32_and_for_a_whole_recording(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rtx = SimpleNamespace(__version__="1.7", ComputeCapability=SimpleNamespace(SM89=None))
    monkeypatch.setitem(sys.modules, "tensorrt", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", rtx)  # type: ignore[arg-type]
    longest = {}

    def make(runtime: TensorRTRuntime, graph: NetworkGraph) -> bytes:
        longest[graph.name] = runtime.shapes.largest
        return b"engine"

    monkeypatch.setattr(TensorRTRuntime, "make", make)
    words = ("--dtype", "bfloat16", "--compute-capability", "8.9", "--max-frames", "600")
    run("test", "-o", str(tmp_path), *words)
    assert longest == {"flow.whole": Sizes(8, 600, 600), "speaker": Sizes(1, 3000)}
    flow, speaker = sorted(path.name for path in tmp_path.glob("*.plan"))
    assert flow.startswith("flow.whole.")
    assert flow.endswith(".bfloat16.tensorrt-rtx-1.7.sm89.plan")
    assert speaker.startswith("speaker.")
    assert speaker.endswith(".float32.tensorrt-rtx-1.7.sm89.plan")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--compute-capability", "8.9"), "TensorRT is not installed: pip install"),
        (("--compute-capability", "89"), "is like 8.9, got '89'"),
        (("--max-rows", "1"), "at least 2 rows of 500 frames, got 1 of 3008"),
        (("--runtime", "onnxruntime", "--compute-capability", "8.9"), "for --runtime tensorrt"),
    ],
)
def test_what_can_not_be_made_is_told(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    complaint: str,
) -> None:
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    assert complaint in run("test", "-o", str(tmp_path / "engines"), *words, status=2)
    assert not (tmp_path / "engines").exists()


def test_tensorrt_wants_a_gpu(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="10"))  # type: ignore[arg-type]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shown = run("test", "-o", str(tmp_path / "engines"), status=2)
    assert "TensorRT builds an engine on the GPU that is to run it" in shown


def test_options_are_what_the_server_builds_with() -> None:
    defaults = {name: of.default for name, of in inspect.signature(flow).parameters.items()}
    assert (defaults["max_rows"], defaults["max_frames"]) == (MAX_ROWS, MAX_FRAMES)
    assert set(FlowDtype) == TOLERANCE.keys()
