"""The voices of a model's folder: voice files, the speakers of a spk2info.pt, and the default."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.checkpoints import native, published
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import Parts
from cosyserve.checkpoints.prepare import prepare
from cosyserve.engine.tts import TTS
from cosyserve.errors import MissingVoiceError, VoiceError
from cosyserve.voices.file import save_voice
from cosyserve.voices.prepared import with_voice_files
from cosyserve.voices.shipped import describe, shipped_voices
from cosyserve.voices.store import open_store
from tests.published import linked
from tests.voices.test_file import PRESET, VOICE
from tests.voices.test_spk2info import triton

SPEAKERS = ("xiaohe", "001", "longxiaoxia")


def speaker_file(folder: Path, *names: str, **changes: Any) -> Path:
    torch.save({name: triton() | changes for name in names}, folder / "spk2info.pt")
    return folder / "spk2info.pt"


@pytest.fixture
def speech(model: Model) -> Model:
    """A model that claims to speak."""
    return replace(model, config=replace(model.config, speech=True))


@pytest.fixture
def folder(tmp_path: Path, cosyvoice2_folder: Path) -> Path:
    """A published folder with speakers beside its weights."""
    folder = tmp_path / "published"
    folder.mkdir()
    for file in cosyvoice2_folder.iterdir():
        (folder / file.name).symlink_to(file)
    speaker_file(folder, *SPEAKERS)
    return folder


def test_speakers_of_a_published_folder_are_its_voices(folder: Path) -> None:
    voices = shipped_voices(published.read(folder))
    assert set(voices) == {*SPEAKERS, "default"}
    assert voices["default"] is voices["001"]
    assert voices["001"].prompt_text == "hello"


def test_speakers_are_of_their_folders_family(tmp_path: Path, cosyvoice3_folder: Path) -> None:
    folder = linked(cosyvoice3_folder, tmp_path / "published")
    speaker_file(folder, *SPEAKERS)
    voices = shipped_voices(published.read(folder, only=()))
    assert set(voices) == {*SPEAKERS, "default"}
    assert {voice.family for voice in voices.values()} == {"cosyvoice3"}


def prepared(folder: Path, out: Path, default: str = "", voices: str = "") -> Parts:
    store = open_store(voices or str(out.parent / "store"))

    def with_voices(parts: Parts) -> Parts:
        return with_voice_files(parts, out.parent / "files", store, default)

    prepare([str(folder)], out, None, progress=False, with_voices=with_voices)
    return native.read(out, only=())


def test_speakers_become_files_of_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    parts = prepared(folder, tmp_path / "native")
    files = {file.name for file in (tmp_path / "native" / "voices").iterdir()}
    assert files == {f"{name}.safetensors" for name in SPEAKERS}
    then, now = shipped_voices(published.read(folder)), shipped_voices(parts)
    assert {n: v.content_hash for n, v in then.items()} == {
        n: v.content_hash for n, v in now.items()
    }


def test_a_default_is_written_into_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    store.put("anna", replace(VOICE, fingerprint=""))
    for name, expected in (("xiaohe", "hello"), ("anna", VOICE.prompt_text)):
        parts = prepared(folder, tmp_path / name / "native", name, str(tmp_path / "store"))
        assert shipped_voices(parts)["default"].prompt_text == expected
    again = prepared(tmp_path / "anna" / "native", tmp_path / "again" / "native", "001")
    assert shipped_voices(again)["default"].name == "001"


@pytest.mark.parametrize(
    ("name", "error", "complaint"),
    [("nobody", MissingVoiceError, "known: .*xiaohe"), ("other", VoiceError, "another model")],
)
def test_a_default_that_can_not_be_leaves_no_folder(
    folder: Path, tmp_path: Path, name: str, error: type[VoiceError], complaint: str
) -> None:
    open_store(str(tmp_path / "store")).put("other", replace(VOICE, fingerprint="else"))
    with pytest.raises(error, match=complaint):
        prepared(folder, tmp_path / "native", name)
    assert not (tmp_path / "native").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"rot", r"spk2info\.pt: .*not a speaker file"),
        ({"a": {"embedding": torch.ones(1, 7)}}, r"spk2info\.pt: .*embedding of 7"),
        ({"a b": triton()}, r"spk2info\.pt: .*can't be a voice's name"),
        ({"a": triton() | {"speech_token": torch.full((1, 5), 9999)}}, r"spk2info\.pt: .*6560"),
        ({"ann": triton()}, r"spk2info\.pt: .*'ann', too: remove one"),
    ],
)
def test_a_broken_speaker_file_is_named(
    tmp_path: Path, speech: Model, content: Any, complaint: str
) -> None:
    file, ann = tmp_path / "spk2info.pt", tmp_path / "ann.safetensors"
    save_voice(PRESET, ann)
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with pytest.raises(VoiceError, match=complaint):
        describe(replace(speech, voices=(ann, file)))


def test_which_voice_is_the_default(
    tmp_path: Path, speech: Model, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cosyserve")
    for names, default in ((SPEAKERS, "001"), (("b", "a"), "a"), (("default", "001"), "default")):
        voices = describe(replace(speech, voices=(speaker_file(tmp_path, *names),))).voices
        assert voices["default"] is voices[default]
    told = [record.getMessage() for record in caplog.records]
    assert [words.split("'")[3] for words in told] == ["001", "a"]


@pytest.mark.parametrize("files", [False, True])
def test_no_model_speaks_in_nobodys_voice(tmp_path: Path, speech: Model, files: bool) -> None:
    silent = replace(speech, voices=(speaker_file(tmp_path),) if files else ())
    assert describe(silent).voices == {}
    with pytest.raises(VoiceError, match="no voice of its own"):
        TTS(silent).say("Hello.")


def test_the_test_model_which_is_no_speech_has_a_voice(model: Model) -> None:
    assert set(describe(model).voices) == {"default"}
