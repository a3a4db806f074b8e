"""From the speech LM to a TensorRT-LLM engine that has said a sentence, in three commands.

A folder that a command has made keeps a record of how: made so already, it is not made again. What
a command leaves behind when it fails is removed.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.deploy.engine.options import BuildOptions, ConvertOptions
from cosyserve.deploy.engine.say import SayOptions
from cosyserve.deploy.nvidia_smi import nvidia_smi
from cosyserve.errors import CosyError, InputError

RECORD = "cosyserve.json"
LIBRARY = "tensorrt_llm"
IMAGE = "nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3"


@dataclass(frozen=True)
class Step:
    command: list[str]
    folder: Path | None = None  # that it makes


def steps(convert: ConvertOptions, build: BuildOptions, say: SayOptions) -> list[Step]:
    """The commands, each as one would type it."""
    module = [sys.executable, "-m"]
    places = ["--model-dir", str(convert.model_dir), "--engine-dir", str(build.engine_dir)]
    run = ["mpirun", "-n", str(convert.gpus), "--allow-run-as-root"] if convert.gpus > 1 else []
    return [
        Step(
            [*module, "cosyserve.deploy.engine.convert", *convert.arguments()], convert.output_dir
        ),
        Step(_trtllm_build(convert, build), build.engine_dir),
        Step([*run, *module, "cosyserve.deploy.engine.say", *places, *say.arguments()]),
    ]


def _trtllm_build(convert: ConvertOptions, build: BuildOptions) -> list[str]:
    words = {
        "--checkpoint_dir": convert.output_dir,
        "--output_dir": build.engine_dir,
        "--max_batch_size": build.max_batch_size,
        "--max_num_tokens": build.max_num_tokens,
        "--gemm_plugin": build.gemm_plugin or convert.dtype,
    }
    if convert.workers > 1:
        words["--workers"] = convert.workers
    return ["trtllm-build", *(str(word) for pair in words.items() for word in pair)]


def run(plan: Sequence[Step], weights: str, *, force: bool, report: Callable[[str], None]) -> None:
    """Runs what is not made yet, all of it with `force`; `weights` names the LM's."""
    depends: dict[str, object] = {"weights": weights, "gpu": nvidia_smi("name")}
    records = [depends | {"commands": _commands(plan[: n + 1])} for n in range(len(plan))]
    begin = 0
    for number, step in enumerate(plan):
        if step.folder and not force and _read_record(step.folder) == records[number]:
            report(f"{step.folder} is made already, with these options; --force makes it again")
            begin = number + 1
    _require([step.command for step in plan[begin:]])
    for step in plan[begin:]:
        if step.folder:
            _check_room(step.folder, force)
    for step, record in zip(plan[begin:], records[begin:], strict=True):
        _run(step, record)


def _commands(made: Sequence[Step]) -> list[list[str]]:
    """Every command so far, whichever Python runs it."""
    return [[Path(step.command[0]).name, *step.command[1:]] for step in made]


def _read_record(folder: Path) -> object:
    if not (folder / "config.json").is_file():  # which checkpoints and engines have
        return None
    try:
        return json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _require(commands: Sequence[Sequence[str]]) -> None:
    """Checks that all programs are there before the first one runs for minutes."""
    programs = [command[0] for command in commands if command[0] != sys.executable]
    missing = [program for program in programs if shutil.which(program) is None]
    in_python = any(sys.executable in command for command in commands)
    if in_python and importlib.util.find_spec(LIBRARY) is None:
        missing.insert(0, LIBRARY)
    if missing:
        raise InputError(
            f"{missing[0]} is not installed: run this where TensorRT-LLM is, e.g. in {IMAGE}, "
            f"or `pip install {LIBRARY}` on a machine with an NVIDIA GPU; --dry-run shows the "
            "commands anywhere"
        )


def _check_room(folder: Path, force: bool) -> None:
    """Refuses a folder that may not be replaced."""
    if not folder.exists():
        return
    if not (folder / RECORD).is_file():
        raise InputError(f"{folder} exists, and was not made whole by this command: remove it")
    if not force:
        raise InputError(
            f"{folder} was made with other options or of another model: --force makes it again, "
            "or choose another folder"
        )


def _run(step: Step, record: dict[str, object]) -> None:
    try:
        if step.folder and step.folder.exists():
            shutil.rmtree(step.folder)
        status = subprocess.run(step.command, check=False).returncode
        if status:
            raise CosyError(f"{_name(step)} failed with status {status}: it says why above")
        if step.folder:
            (step.folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise CosyError(f"{_name(step)} failed: {error}") from error
    finally:
        if step.folder and not (step.folder / RECORD).is_file():
            shutil.rmtree(step.folder, ignore_errors=True)


def _name(step: Step) -> str:
    return next((word for word in step.command if word.startswith("cosyserve.")), step.command[0])
