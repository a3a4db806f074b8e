from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from tokenizers import Tokenizer, models

from cosyserve.checkpoints import native, published
from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.parts import MODULES, Parts, blank, drop_blanks, shapes
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.errors import CheckpointError
from cosyserve.models.config import LMConfig, ModelConfig
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.int8 import packed
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.text import TextTokenizer
from tests.checkpoints.memory import PEAK_RESET, peak_of
from tests.text.test_pronouncer import random_pronouncer

PARTS = tuple(MODULES)


@pytest.fixture(scope="module")
def parts() -> Parts:
    return random_parts()


@pytest.fixture(scope="module")
def whole(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "model"
    voice = folder.parent / "default.safetensors"
    voice.write_bytes(b"any voice")
    native.write(replace(parts, voices=(voice,)), folder)
    return folder


def test_round_trip(parts: Parts, whole: Path) -> None:
    actual = published.read(whole)
    assert actual.config == parts.config
    assert actual.states.keys() == parts.states.keys()
    for name, state in parts.states.items():
        assert actual.states[name].keys() == state.keys()
        assert all(torch.equal(actual.states[name][key], state[key]) for key in state)
    assert actual.tokenizer is not None
    assert parts.tokenizer is not None
    assert actual.tokenizer.encode("hé<|im_end|>") == parts.tokenizer.encode("hé<|im_end|>")
    assert [voice.read_bytes() for voice in actual.voices] == [b"any voice"]
    assert sorted(os.listdir(whole)) == sorted(
        ["config.json", "tokenizer.json", "voices", *(f"{name}.safetensors" for name in PARTS)]
    )


def test_small_weights_and_a_pronouncer(parts: Parts, tmp_path: Path) -> None:
    assert parts.tokenizer is not None
    bpe = Tokenizer(models.BPE({mark: i for i, mark in enumerate("ptɑi ")}, []))
    reading = TextTokenizer(bpe, "test", random_pronouncer())
    small = {**parts.states, "lm": packed(parts.states["lm"])}
    native.write(replace(parts, states=small, tokenizer=reading), tmp_path / "model")
    actual = native.read(tmp_path / "model")
    assert actual.tokenizer is not None
    assert actual.tokenizer.encode("any words") == reading.encode("any words") != []
    for key, value in parts.states["lm"].items():
        assert torch.allclose(actual.states["lm"][key].float(), value.float(), atol=0.05)


@pytest.mark.parametrize(
    "folder_of", ["cosyvoice2_folder", "cosyvoice3_folder", "hugging_face_lm_folder"]
)
def test_published_folders_become_native(
    folder_of: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Mapped pickles, views of larger tables: what is read is what was written."""
    parts = published.read(request.getfixturevalue(folder_of))
    native.write(parts, tmp_path / "deep" / "model")
    actual = published.read(tmp_path / "deep" / "model")
    for name, state in parts.states.items():
        assert all(torch.equal(actual.states[name][key], state[key]) for key in state)


def test_cast(parts: Parts, tmp_path: Path) -> None:
    native.write(parts.cast(torch.bfloat16), tmp_path / "model")
    actual = published.read(tmp_path / "model").states
    for name in PARTS:
        dtypes = {value.dtype for value in actual[name].values() if value.is_floating_point()}
        assert dtypes == {torch.bfloat16 if name in ("lm", "flow") else torch.float32}
    for key, value in parts.states["lm"].items():
        assert torch.equal(actual["lm"][key], value.bfloat16())
    model = load_folder(tmp_path / "model", dtype=torch.float32)
    assert model.need_lm()[0].norm.weight.dtype == torch.float32


def test_tensors_that_share_memory_are_written_apart(parts: Parts, tmp_path: Path) -> None:
    state = dict(parts.states["vocoder"])
    state["f0_predictor.condnet.2.weight"] = state["f0_predictor.condnet.4.weight"]
    state["conv_pre.bias"] = torch.zeros(1).expand(state["conv_pre.bias"].shape)
    native.write(replace(parts, states=parts.states | {"vocoder": state}), tmp_path / "model")
    actual = published.read(tmp_path / "model").states["vocoder"]
    assert all(torch.equal(actual[key], state[key]) for key in state)


def test_an_encoder_that_stays_onnx(cosyvoice2_folder: Path, parts: Parts, tmp_path: Path) -> None:
    sizes = published.read(cosyvoice2_folder).config.speech_tokenizer
    states = {name: state for name, state in parts.states.items() if name != "speech_tokenizer"}
    onnx = {"speech_tokenizer": cosyvoice2_folder / "speech_tokenizer_v2.onnx"}
    config = replace(parts.config, speech_tokenizer=sizes)
    native.write(replace(parts, config=config, states=states, onnx=onnx), tmp_path / "model")
    actual = published.read(tmp_path / "model")
    assert actual.onnx == {"speech_tokenizer": tmp_path / "model" / "speech_tokenizer.onnx"}
    assemble(actual).need_prompt_encoders()


def test_an_existing_place_is_never_touched(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    before = sorted(os.listdir(tmp_path))
    for name in before:
        with pytest.raises(CheckpointError, match=f"{name} exists already"):
            native.write(parts, tmp_path / name)
    with pytest.raises(CheckpointError, match="can't be written"):
        native.write(parts, tmp_path / "file" / "model")
    assert sorted(os.listdir(tmp_path)) == before
    assert not os.listdir(tmp_path / "empty")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (native, "save_file"),
        (shutil, "copyfile"),
        (os, "rename"),
        (Path, "write_text"),
        (Path, "mkdir"),
        (native.TextTokenizer, "save"),
    ],
)
def test_an_interrupted_write_leaves_nothing(
    place: Any, name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = published.read(whole)
    errors = [OSError(errno.ENOSPC, "disk full")]
    if place is native or name == "save":  # these libraries have errors of their own
        errors.append(Exception("disk full"))
    for error in errors:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, Mock(side_effect=error))
            with pytest.raises(CheckpointError, match=r"model: can't be written: .*disk full"):
                native.write(parts, tmp_path / "model")
        assert os.listdir(tmp_path) == []


def test_another_process_was_faster(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def late(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "config.json").write_text("theirs")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(CheckpointError, match="can't be written"):
        native.write(parts, tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model" / "config.json").read_text() == "theirs"


def checksum(folder: Path) -> float:
    flow, _ = load_folder(folder).need_token2wav()
    return sum(parameter.double().sum().item() for parameter in flow.parameters())


def test_two_processes_load_one_folder(whole: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert [*pool.map(checksum, [whole] * 2)] == [checksum(whole)] * 2


KINDS = (SpeechLM, Flow, HiFT, S3Tokenizer, CamPlus)


@pytest.mark.parametrize("folder", ["whole", "cosyvoice2_folder"])
def test_a_load_makes_every_module_once_and_for_itself(
    folder: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Path = request.getfixturevalue(folder)
    made: Counter[str] = Counter()

    def count(kind: type, init: Callable[..., None]) -> None:
        def counted(self: object, *sizes: object) -> None:
            made[kind.__name__] += 1
            init(self, *sizes)

        monkeypatch.setattr(kind, "__init__", counted)

    drop_blanks()
    for kind in KINDS:
        count(kind, kind.__init__)
    one, other = load_folder(place), load_folder(place)
    assert made == {kind.__name__: 2 for kind in KINDS}
    for first, second in zip(one.token2wavs[0], other.token2wavs[0], strict=True):
        assert first is not second


def test_a_load_keeps_no_module_of_a_part_that_is_not_wanted(cosyvoice2_folder: Path) -> None:
    def living() -> int:
        gc.collect()
        return sum(type(thing) in KINDS for thing in gc.get_objects())

    drop_blanks()
    before = living()
    model = load_folder(cosyvoice2_folder, only=("lm",))
    assert model.lm
    assert living() == before + 1


@pytest.mark.skipif(not PEAK_RESET.exists(), reason="needs Linux's /proc")
def test_loading_takes_hardly_more_memory_than_the_weights(
    parts: Parts, whole: Path, tmp_path: Path
) -> None:
    lm = LMConfig(256, 512, 2, 4, 2, text_vocab=190_000)
    state = {key: torch.full(shape, 0.5) for key, shape in shapes(blank(SpeechLM, lm)).items()}
    native.write(
        Parts(ModelConfig(lm=lm), {"lm": state}, tokenizer=parts.tokenizer), tmp_path / "model"
    )
    size = sum(value.nbytes for value in state.values())
    assert size > 200e6
    assert peak_of(load_folder, tmp_path / "model", after=(whole,)) < 1.15 * size
