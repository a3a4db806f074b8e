"""`cosyserve deploy engine llm` as a person uses it, where there is no TensorRT-LLM."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyserve.cli import main
from cosyserve.cli.deploy.engine import EngineDtype, GemmPlugin, WeightOnly
from cosyserve.deploy.engine.options import DTYPES, PRECISIONS
from tests.deploy.engine.test_source import changed

PLACES = ("--output-dir", "checkpoint", "--engine-dir", "engine")
Command = Callable[..., tuple[str, str]]


@pytest.fixture
def llm(
    tmp_path: Path,
    hugging_face_lm_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    (tmp_path / "lm").symlink_to(hugging_face_lm_folder)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, status: int = 0) -> tuple[str, str]:
        command = ["cosyserve", "deploy", "engine", "llm", "--model-dir", "lm", *PLACES, *words]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        assert ended.value.code == status, shown.err
        assert [path.name for path in tmp_path.iterdir()] == ["lm"]  # nothing is written
        return shown.out, shown.err

    return run


def commands(shown: str) -> list[list[str]]:
    return [shlex.split(line) for line in shown.splitlines()]


@pytest.mark.parametrize("family", ["hugging_face_lm_folder", "hugging_face_lm3_folder"])
def test_a_dry_run_prints_what_would_run(
    llm: Command, tmp_path: Path, family: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "lm").unlink()
    (tmp_path / "lm").symlink_to(request.getfixturevalue(family))
    convert, build, say = commands(llm("--dry-run", "--dtype", "float16")[0])
    assert convert[1:3] == ["-m", "cosyserve.deploy.engine.convert"]
    assert build[0] == "trtllm-build"
    assert build[-2:] == ["--gemm_plugin", "float16"]
    assert say[1:3] == ["-m", "cosyserve.deploy.engine.say"]


@pytest.mark.parametrize(
    "words",
    [
        "--dtype bfloat16",
        "--tp-size 2",
        "--pp-size 2",
        "--cp-size 2",
        "--use-weight-only",
        "--use-weight-only --weight-only-precision int4",
        "--smoothquant 0.5 --per-channel --per-token --int8-kv-cache --calib-dataset texts",
        "--load-model-on-cpu",
        "--tp-size 2 --use-parallel-embedding --embedding-sharding-dim 1",
        "--workers 2",
    ],
)
def test_options_of_the_conversion_are_passed_on(llm: Command, words: str) -> None:
    convert, *_ = commands(llm("--dry-run", *words.split())[0])
    assert convert[7:] == words.split()


def test_options_of_quantized_weights_are_passed_on(
    llm: Command, tmp_path: Path, hugging_face_lm_folder: Path
) -> None:
    (tmp_path / "lm").unlink()
    stored = {"quant_method": "gptq", "group_size": 64}
    changed(hugging_face_lm_folder, tmp_path / "lm", quantization_config=stored)
    words = ["--use-weight-only", "--weight-only-precision", "int4_gptq", "--per-group"]
    convert, *_ = commands(llm("--dry-run", *words, "--group-size", "64")[0])
    assert convert[7:] == [*words, "--group-size", "64"]


def test_options_of_build_and_sentence_are_passed_on(llm: Command) -> None:
    words = ["--max-batch-size", "64", "--max-num-tokens", "4096", "--gemm-plugin", "disable"]
    said = ["--text", "Say it.", "--speak", "lm", "-o", "out.wav"]
    _, build, say = commands(llm("--dry-run", *words, *said)[0])
    assert build[5:] == (
        ["--max_batch_size", "64", "--max_num_tokens", "4096", "--gemm_plugin", "disable"]
    )
    assert say[-6:] == ["--text", "Say it.", "--speak", "lm", "--output", "out.wav"]


def test_nonsense_is_one_line(llm: Command) -> None:
    _, error = llm("--dry-run", "--per-token", status=2)
    assert error == "error: --per-token says how --smoothquant scales: give that, too\n"
    _, error = llm("--dry-run", "--per-group", "--group-size", "64", status=2)
    assert error == "error: --per-group is for --weight-only-precision int4_gptq\n"
    _, error = llm("--dry-run", "-o", "out.wav", status=2)
    assert error == "error: --speak MODEL_DIR and -o FILE.wav belong together\n"


def test_without_tensorrt_llm_it_is_one_line(llm: Command) -> None:
    _, error = llm(status=2)
    assert error.startswith("error: tensorrt_llm is not installed: run this where TensorRT-LLM is")
    assert len(error.splitlines()) == 1


def test_choices_are_those_of_the_options() -> None:
    assert tuple(EngineDtype) == DTYPES
    assert tuple(WeightOnly) == PRECISIONS
    assert tuple(GemmPlugin) == (*DTYPES, "disable")
