"""Whatever a published folder holds: a model, or one CheckpointError that names the file."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosyserve.checkpoints import published
from cosyserve.errors import CheckpointError
from tests import published as tiny

FOLDERS = {
    "cosyvoice2_folder": (
        "cosyvoice2.yaml",
        "CosyVoice-BlankEN/config.json",
        "CosyVoice-BlankEN/vocab.json",
        "CosyVoice-BlankEN/merges.txt",
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "speech_tokenizer_v2.onnx",
        "campplus.onnx",
    ),
    "cosyvoice3_folder": (
        "cosyvoice3.yaml",
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "speech_tokenizer_v3.onnx",
    ),
    "hugging_face_lm_folder": (
        "config.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "model.safetensors",
    ),
    "token2wav_folder": ("flow.yaml", "flow.pt", "hift.pt"),
}
FILES = [(folder, file) for folder, files in FOLDERS.items() for file in files]
MAY_BE_CUT = {".yaml", ".txt", ".onnx"}  # what is left may be whole again
KEY = "input_embedding.weight"
SIZE = re.compile(
    r"(output_size|vocab_size|heads|head_dim|linear_units|blocks|channels|depth|hidden_size|kernel"
    r"|dilation|_rates|n_fft|hop_len|harmonics)\w*: (?!80$)"
)

Make = Callable[..., Path]
Change = Callable[[Any], Any]


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def make(folder: str, file: str = "") -> Path:
        """Without the prompt encoders, whose reading takes longest, unless they are meant."""
        original = request.getfixturevalue(folder)
        encoders = [path.name for path in original.glob("*.onnx")]
        without = [name for name in encoders if not file.endswith(".onnx") or name != file]
        return tiny.linked(original, tmp_path / "model", without)

    return make


def error_of(folder: Path) -> str:
    try:
        published.read(folder)
    except CheckpointError as error:
        return str(error)
    return ""


def refusal(folder: Path) -> str:
    message = error_of(folder)
    assert 0 < len(message) < 1000 + len(str(folder))
    return message


def replaced(file: Path, data: bytes) -> None:
    file.unlink()
    file.write_bytes(data)


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_cut_off(folder: str, file: str, copy: Make) -> None:
    path = copy(folder, file) / file
    data = path.read_bytes()
    for size in (0, len(data) // 2, len(data) - 1):
        replaced(path, data[:size])
        error = error_of(path.parents[file.count("/")])
        assert path.name in error or (not error and path.suffix in MAY_BE_CUT)


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_something_else_in_its_place(folder: str, file: str, copy: Make) -> None:
    root = copy(folder, file)
    path = root / file
    junk = np.random.default_rng(0).bytes(5000)
    for data in (junk, b"[]", b"PK\x03\x04" + junk):
        replaced(path, data)
        assert path.name in refusal(root)
    for place in (Path.mkdir, os.mkfifo, lambda p: p.symlink_to("/dev/zero")):
        path.unlink()
        place(path)
        assert f"{path.name}: not a file" in refusal(root) or path.name == "config.json"
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(b"")


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_missing(folder: str, file: str, copy: Make) -> None:
    if file.endswith(".onnx"):
        pytest.skip("a model needs no prompt encoders")
    root = copy(folder)
    path = root / file
    path.unlink()
    assert path.name in refusal(root)
    path.symlink_to(path)
    assert path.name in refusal(root)


def without(key: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: v for k, v in state.items() if k != key}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: {"model": state}, "'model' is no plain tensor, but a dict"),
        (lambda state: without(KEY, state), f"key '{KEY}' is missing (1 in all)"),
        (lambda state: state | {"extra": state[KEY]}, "unexpected key 'extra'"),
        (lambda state: state | {KEY: state[KEY][1:]}, f"'{KEY}' has shape [6560, 32], expected"),
        (lambda state: state | {KEY: state[KEY].T}, f"'{KEY}' has shape [32, 6561]"),
        (lambda state: state | {KEY: torch.tensor(1.0)}, f"'{KEY}' has shape []"),
        (lambda state: state | {KEY: state[KEY].int()}, f"'{KEY}' has type torch.int32"),
        (lambda state: state | {KEY: state[KEY].double()}, f"'{KEY}' has type torch.float64"),
        (lambda state: state | {KEY: state[KEY].half()}, "others have torch.float32"),
        (lambda state: state | {KEY: state[KEY] + torch.nan}, f"'{KEY}' holds NaN"),
        (lambda state: state | {KEY: state[KEY] - torch.inf}, f"'{KEY}' holds NaN or infinity"),
    ],
)
def test_a_state_of_another_model(change: Change, message: str, copy: Make) -> None:
    root = copy("token2wav_folder")
    file = root / "flow.pt"
    state = torch.load(file)
    file.unlink()
    torch.save(change(state), file)
    assert f"{file}: " in refusal(root)
    assert message in refusal(root)


def test_a_vocoder_that_divides_by_zero(copy: Make) -> None:
    root = copy("token2wav_folder")
    state = torch.load(root / "hift.pt")
    state["conv_pre.parametrizations.weight.original1"][0] = 0.0
    (root / "hift.pt").unlink()
    torch.save(state, root / "hift.pt")
    assert "hift.pt: 'conv_pre.weight' holds NaN" in refusal(root)


@pytest.mark.parametrize("file", ["cosyvoice2.yaml", "cosyvoice3.yaml", "flow.yaml"])
def test_absurd_sizes_in_yaml(file: str, copy: Make) -> None:
    name = Path(file).stem if file != "flow.yaml" else "token2wav"
    root = copy(f"{name}_folder")
    lines = (root / file).read_text().splitlines()
    absurd = itertools.cycle(["0", "-1", "1000000000000", "7.5", "'x'", "[]", "{}", ".nan", "65"])
    read = [i for i, line in enumerate(lines) if SIZE.search(line)]
    assert len(read) >= 15
    for i in read * 2:  # twice: an odd number of lines meets an even number of absurdities
        name = lines[i].partition(":")[0]
        text = "\n".join([*lines[:i], f"{name}: {next(absurd)}", *lines[i + 1 :]])
        replaced(root / file, text.encode())
        message = refusal(root)
        assert str(root / file) in message or "flow.pt" in message or "hift.pt" in message


@pytest.mark.parametrize(
    "size", [0, -1, 10**12, 10**30, 7.5, "x", [], {}, None, True, float("nan")]
)
@pytest.mark.parametrize("folder", ["cosyvoice2_folder", "hugging_face_lm_folder"])
def test_absurd_sizes_in_json(folder: str, size: Any, copy: Make) -> None:
    root = copy(folder)
    file = next(root.rglob("config.json"))
    config = json.loads(file.read_text())
    for key in config.keys() - {"model_type", "rms_norm_eps", "rope_theta"}:
        replaced(file, json.dumps(config | {key: size}).encode())
        assert f"{file}: '{key}' must be a whole number" in refusal(root)


def test_a_tokenizer_larger_than_the_lm(copy: Make) -> None:
    root = copy("cosyvoice2_folder")
    file = root / "CosyVoice-BlankEN" / "config.json"
    replaced(file, json.dumps(tiny.qwen_config(310)).encode())
    assert "config.json: vocab_size 310 is smaller than the 320 ids" in refusal(root)


@pytest.mark.parametrize(
    "ids", [{"<|s_0|>": 0}, {"<|s_0|>": -5}, {"<|eos1|>": 10**12}, {"<|sos|>": 3}]
)
def test_a_table_that_its_tokenizer_does_not_describe(ids: dict[str, int], copy: Make) -> None:
    root = copy("hugging_face_lm_folder")
    file = root / "added_tokens.json"
    replaced(file, json.dumps(json.loads(file.read_text()) | ids).encode())
    assert str(root) in refusal(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"extra": torch.zeros(1)}, "unexpected key 'extra'"),
        (lambda s: s | {"lm_head.bias": s["lm_head.bias"][1:]}, "'lm_head.bias' has shape"),
        (lambda s: s | {"lm_head.bias": torch.full((tiny.HF_ROWS,), torch.nan)}, "holds NaN"),
        (lambda s: s | {"lm_head.bias": s["lm_head.bias"].double()}, "has type torch.float64"),
        (lambda s: {k: v for k, v in s.items() if "norm" not in k}, "is missing"),
    ],
)
def test_a_safetensors_file_of_something_else(change: Change, message: str, copy: Make) -> None:
    root = copy("hugging_face_lm_folder")
    file = root / "model.safetensors"
    state = load_file(file)
    file.unlink()
    save_file(change(state), file)
    assert message in refusal(root)
    assert str(file) in refusal(root)
