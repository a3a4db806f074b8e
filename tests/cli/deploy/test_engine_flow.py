"""`cosyserve deploy engine flow` as a person uses it, where there is no GPU."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyserve.backends.estimators.engines import TOLERANCE
from cosyserve.backends.estimators.tensorrt_library import LIBRARIES
from cosyserve.backends.estimators.tensorrt_runtime import MAX_FRAMES, MAX_ROWS
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


def test_an_engine_is_made_tried_and_found_again(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_HOME", str(tmp_path))
    first = run("test", "--runtime", "onnxruntime")
    (made,) = (tmp_path / "engines").glob("flow.whole.*.float32.onnx")
    assert f"written: {made}" in first
    assert "tried: off by" in first
    assert f"{made} is made already" in run("test", "--runtime", "onnxruntime")


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
