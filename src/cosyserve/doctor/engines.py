"""TensorRT engines beside a model: whether they were built for this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from cosyserve.deploy.engine.build import RECORD
from cosyserve.deploy.nvidia_smi import nvidia_smi
from cosyserve.doctor import troubles
from cosyserve.doctor.finding import Finding
from cosyserve.doctor.machine import installed_version
from cosyserve.doctor.troubles import Trouble


def engines(folder: Path) -> Iterator[Finding]:
    """Of every engine of TensorRT-LLM in a folder of the folder."""
    for place in sorted({file.parent for file in folder.glob("*/rank*.engine")}):
        yield engine(place, installed_version("tensorrt_llm"), nvidia_smi("name"))


def engine(folder: Path, library: str, gpu: str) -> Finding:
    """`library` is the version of TensorRT-LLM here, `gpu` the name of the GPU; empty: none."""
    try:
        built_by = str(json.loads((folder / "config.json").read_text("utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return _bad(folder, f"{folder / 'config.json'} can't be read", troubles.OTHER_TRTLLM)
    if library and built_by != library:
        detail = f"built by TensorRT-LLM {built_by}, here is {library}"
        return _bad(folder, detail, troubles.OTHER_TRTLLM)
    built_for = _built_for(folder)
    if gpu and built_for and gpu != built_for:
        return _bad(folder, f"built for {built_for}, here is {gpu}", troubles.OTHER_GPU)
    detail = f"built by TensorRT-LLM {built_by} for {built_for or 'a GPU that nobody noted'}"
    return Finding(f"engine {folder.name}", detail, True if library and gpu else None)


def _built_for(folder: Path) -> str:
    """The GPU that `cosyserve deploy engine` noted; empty: somebody else built the engine."""
    try:
        return str(json.loads((folder / RECORD).read_text("utf-8"))["gpu"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _bad(folder: Path, detail: str, trouble: Trouble) -> Finding:
    return Finding(f"engine {folder.name}", detail, False, trouble.fix)
