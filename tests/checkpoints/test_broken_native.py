"""Whatever a native folder holds: a model, or one CheckpointError that names the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosyserve.checkpoints import native, published
from cosyserve.checkpoints.parts import MODULES
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.errors import CheckpointError
from tests.published import linked


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "model"
    native.write(random_parts(), folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return linked(whole, tmp_path / "model")


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        published.read(folder)
    return str(caught.value)


def replaced(file: Path, data: bytes) -> None:
    file.unlink()
    file.write_bytes(data)


@pytest.mark.parametrize("name", [*(f"{part}.safetensors" for part in MODULES), "tokenizer.json"])
def test_broken_files(name: str, folder: Path) -> None:
    file = folder / name
    data = file.read_bytes()
    for size in (0, len(data) // 2, len(data) - 1):
        replaced(file, data[:size])
        assert str(file) in refusal(folder)
    file.unlink()
    assert f"{file}: missing" in refusal(folder)
    file.mkdir()
    assert f"{file}: not a file" in refusal(folder)
    file.rmdir()
    os.mkfifo(file)
    assert f"{file}: not a file" in refusal(folder)


@pytest.mark.parametrize("part", MODULES)
def test_broken_states(part: str, folder: Path) -> None:
    file = folder / f"{part}.safetensors"
    state = load_file(file)
    key = next(key for key, value in state.items() if value.ndim > 1)
    file.unlink()
    for change, message in (
        (state | {"extra": state[key].clone()}, "unexpected key 'extra'"),
        ({k: v for k, v in state.items() if k != key}, f"key '{key}' is missing"),
        (state | {key: state[key][None]}, f"'{key}' has shape"),
        (state | {key: state[key].long()}, f"'{key}' has type torch.int64"),
        (state | {key: state[key].double()}, f"'{key}' has type torch.float64"),
        (state | {key: torch.full_like(state[key], torch.nan)}, f"'{key}' holds NaN"),
    ):
        save_file(change, file)
        assert f"{file}: {message}" in refusal(folder)


def changed(path: tuple[str, ...], value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(data: dict[str, Any]) -> Any:
        inner = data
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return data

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(("version",), 2), "format version 2"),
        (changed(("version",), "9" * 10**4), "format version"),
        (changed(("model",), None), "model must be an object"),
        (changed(("model",), []), "model must be an object"),
        (changed(("model", "lm", "layers"), 10**12), "model.lm.layers must be"),
        (changed(("model", "lm", "layers"), 3), "layers.2"),
        (changed(("model", "lm", "heads"), 3), "model.lm: sizes that no model can have"),
        (changed(("model", "flow", "estimator", "kind"), "x"), "model.flow.estimator.kind"),
        (changed(("model", "flow", "speech_tokens"), 5), "model: sizes that no model can have"),
        (
            changed(("model", "sampling", "temperature"), 5),
            "model.sampling: sizes that no model can have: temperature must",
        ),
        (
            changed(("model", "speech_tokenizer", "layers"), 10**6),
            "must be a whole number of 1..64",
        ),
        (lambda data: data | {"x": "y" * native.MAX_CONFIG_BYTES}, "larger than"),
        (lambda data: [data], "expected a JSON object"),
    ],
)
def test_broken_configs(change: Any, message: str, folder: Path) -> None:
    file = folder / "config.json"
    data = json.loads(file.read_text())
    for indent in (None, 3):  # how the file is laid out does not matter
        replaced(file, json.dumps(change(data), indent=indent).encode())
        actual = refusal(folder)
        assert str(folder) in actual
        assert message in actual


def test_cut_configs(folder: Path) -> None:
    file = folder / "config.json"
    data = file.read_bytes()
    for size in (0, 5, 40, len(data) // 2, len(data) - 3):
        replaced(file, data[:size])
        assert "config.json" in refusal(folder)
    replaced(file, b'{"format": "cosyserve", "a": ' + b"[" * 30_000)
    assert "config.json: not JSON" in refusal(folder)
