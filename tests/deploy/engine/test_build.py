"""Commands that build an engine: their exact words, and what they leave behind.

`trtllm-build` is a stand-in that keeps its words: the real one needs a GPU.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosyserve.deploy.engine.build import RECORD, Step, run, steps
from cosyserve.deploy.engine.options import BuildOptions, ConvertOptions
from cosyserve.deploy.engine.say import SayOptions
from cosyserve.deploy.nvidia_smi import nvidia_smi
from cosyserve.errors import CosyError, InputError

STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, sys
words = sys.argv[1:]
folder = pathlib.Path(words[words.index("--output_dir") + 1])
folder.mkdir()
(folder / "config.json").write_text(json.dumps(words))
sys.exit(int(os.environ.get("STATUS", "0")))
"""
CONVERT = ConvertOptions(model_dir=Path("lm"), output_dir=Path("checkpoint"), dtype="bfloat16")
BUILD = BuildOptions(engine_dir=Path("engine"))
SAY = SayOptions(text="Hello, you.")
PYTHON = [sys.executable, "-m"]


def commands(**values: Any) -> list[list[str]]:
    return [step.command for step in steps(replace(CONVERT, **values), BUILD, SAY)]


def test_the_commands_of_the_original() -> None:
    assert [shlex.join(words) for words in commands()] == [
        f"{sys.executable} -m cosyserve.deploy.engine.convert --model-dir lm"
        " --output-dir checkpoint --dtype bfloat16",
        "trtllm-build --checkpoint_dir checkpoint --output_dir engine"
        " --max_batch_size 16 --max_num_tokens 32768 --gemm_plugin bfloat16",
        f"{sys.executable} -m cosyserve.deploy.engine.say --model-dir lm --engine-dir engine"
        " --text 'Hello, you.'",
    ]


def test_several_gpus_have_a_process_each() -> None:
    _, build, say = commands(tp_size=2, pp_size=2, workers=4)
    assert build[-2:] == ["--workers", "4"]
    assert say[:6] == ["mpirun", "-n", "4", "--allow-run-as-root", *PYTHON]


def test_options_of_the_build_and_the_sentence_arrive() -> None:
    other = BuildOptions(
        engine_dir=Path("e"), max_batch_size=64, max_num_tokens=4096, gemm_plugin="disable"
    )
    said = SayOptions(text="a", speak=Path("model"), output=Path("a.wav"))
    _, build, say = (step.command for step in steps(CONVERT, other, said))
    assert shlex.join(build[3:]) == (
        "--output_dir e --max_batch_size 64 --max_num_tokens 4096 --gemm_plugin disable"
    )
    assert say[-4:] == ["--speak", "model", "--output", "a.wav"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to build in, with the stand-in on the PATH."""
    program = tmp_path / "bin" / "trtllm-build"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build_step(**values: Any) -> list[Step]:
    return steps(CONVERT, replace(BUILD, **values), SAY)[1:2]


def built(plan: list[Step], weights: str = "weights", *, force: bool = False) -> list[str]:
    said: list[str] = []
    run(plan, weights, force=force, report=said.append)
    return said


def builds(place: Path, change: Callable[[], object]) -> bool:
    """Whether something builds the engine again."""
    before = (place / "engine" / "config.json").stat().st_mtime_ns
    change()
    return (place / "engine" / "config.json").stat().st_mtime_ns != before


@pytest.mark.server
def test_trtllm_build_gets_its_words(place: Path) -> None:
    (step,) = build_step()
    assert built([step]) == []
    assert json.loads((place / "engine" / "config.json").read_text()) == step.command[1:]


@pytest.mark.server
def test_an_engine_is_built_once(place: Path) -> None:
    built(build_step())
    assert not builds(place, lambda: built(build_step()))
    assert built(build_step()) == [
        "engine is made already, with these options; --force makes it again"
    ]
    assert builds(place, lambda: built(build_step(), force=True))


@pytest.mark.server
def test_another_engine_is_not_built_over_it(place: Path) -> None:
    built(build_step())
    for plan, weights in ((build_step(max_batch_size=64), "weights"), (build_step(), "others")):
        with pytest.raises(InputError, match=r"engine was made with other options .* --force"):
            built(plan, weights)
    built(build_step(max_batch_size=64), force=True)
    assert "64" in json.loads((place / "engine" / "config.json").read_text())


@pytest.mark.server
@pytest.mark.parametrize("force", [False, True])
def test_folders_of_others_are_left_alone(place: Path, force: bool) -> None:
    (place / "engine").mkdir()
    (place / "engine" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"engine exists, and was not made whole .*: remove it"):
        built(build_step(), force=force)
    assert [file.name for file in (place / "engine").iterdir()] == ["mine.txt"]


@pytest.mark.server
def test_a_build_that_fails_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(CosyError, match="trtllm-build failed with status 3"):
        built(build_step())
    assert not (place / "engine").exists()


@pytest.mark.server
def test_an_engine_stays_until_its_successor_is_begun(place: Path) -> None:
    built(build_step())
    (place / "checkpoint").mkdir()
    (place / "checkpoint" / RECORD).write_text("{}")
    fails = Step(["false"], Path("checkpoint"))
    with pytest.raises(CosyError, match="false failed with status 1"):
        built([fails, *build_step()], force=True)
    assert (place / "engine" / RECORD).is_file()
    assert not (place / "checkpoint").exists()


@pytest.mark.server
def test_a_whole_engine_needs_no_checkpoint(place: Path) -> None:
    """The record of an engine has all that it depends on, the conversion too."""
    plan = steps(CONVERT, BUILD, SAY)[:2]
    commands = [[Path(step.command[0]).name, *step.command[1:]] for step in plan]
    (place / "engine").mkdir()
    record = {"weights": "weights", "commands": commands, "gpu": nvidia_smi("name")}
    (place / "engine" / RECORD).write_text(json.dumps(record))
    (place / "engine" / "config.json").write_text("{}")
    assert len(built(plan)) == 1
    other = steps(replace(CONVERT, tp_size=2), BUILD, SAY)[:2]
    with pytest.raises(InputError, match="tensorrt_llm is not installed"):
        built(other)


def test_what_is_missing_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"tensorrt_llm is not installed: .*25\.06-trtllm-python"):
        built(steps(CONVERT, BUILD, SAY))
    with pytest.raises(InputError, match="trtllm-build is not installed"):
        built(build_step())
    assert list(tmp_path.iterdir()) == []
