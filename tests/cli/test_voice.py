"""Voices on the command line: kept, imported, beside the weights of a model."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
import torch

from cosyserve.audio import decode
from cosyserve.voices import spk2info
from tests.cli.commands import Command
from tests.published import linked


def test_a_voice_is_kept_shown_used_and_forgotten(home: Path, cosyserve: Command) -> None:
    cosyserve("voice", "add", "anna", "me.wav", "--text", "Words.", "--consent", "Anna")
    assert cosyserve("voice", "list").stdout == b"anna\n"
    shown = cosyserve("voice", "show", "anna").stdout.decode()
    assert "75 tokens" in shown
    assert "Anna" in shown
    cosyserve("say", "Hi.", "--voice", "anna", "-o", "out.wav")
    cosyserve("say", "Hi.", "--voice", "kept/voices/anna.safetensors", "-o", "out.wav")
    cosyserve("voice", "remove", "anna")
    assert cosyserve("voice", "list").stdout == b""
    assert "no voice named 'anna'" in cosyserve("voice", "show", "anna", status=2).stderr


def test_voices_in_another_place(home: Path, cosyserve: Command) -> None:
    elsewhere = ("--voice-store", str(home / "elsewhere"))
    cosyserve("voice", "add", "anna", "me.wav", *elsewhere)
    assert cosyserve("voice", "list", *elsewhere).stdout == b"anna\n"
    assert cosyserve("voice", "list").stdout == b""
    cosyserve("say", "Hi.", "--voice", "anna", *elsewhere)
    assert "no voice named 'anna'" in cosyserve("say", "Hi.", "--voice", "anna", status=2).stderr


def test_speakers_of_the_original_are_imported(home: Path, cosyserve: Command) -> None:
    speaker = {
        "prompt_text": "你好",
        "speech_token": torch.arange(10, dtype=torch.int32)[None],
        "speech_feat": torch.zeros(1, 20, 80),
        "embedding": torch.ones(1, 192),
    }
    torch.save({"001": speaker, "中文女": {"embedding": torch.ones(1, 192)}}, home / "spk2info.pt")
    cosyserve("voice", "import", "spk2info.pt")
    assert cosyserve("voice", "list").stdout.decode().split() == ["001", "中文女"]


FAMILIES = pytest.mark.parametrize("family", ["cosyvoice2_folder", "cosyvoice3_folder"])


@pytest.fixture
def speakers(home: Path, family: str, request: pytest.FixtureRequest) -> Path:
    """A published folder with a spk2info.pt of two speakers."""
    folder = linked(request.getfixturevalue(family), home / "published")
    speaker = {
        "prompt_text": "hello",
        "speech_token": torch.arange(10, dtype=torch.int32)[None],
        "speech_feat": torch.zeros(1, 20, 80),
        "embedding": torch.ones(1, 192),
    }
    torch.save(
        {"xiaohe": {"embedding": torch.ones(1, 192)}, "001": speaker}, folder / "spk2info.pt"
    )
    return folder


def spoken(cosyserve: Command, *options: str) -> bytes:
    return cosyserve("say", "hello", "-o", "-", "--format", "pcm", *options).stdout


@FAMILIES
def test_speakers_beside_the_weights_are_voices(cosyserve: Command, speakers: Path) -> None:
    model = ("--model", str(speakers))
    first, other = (spoken(cosyserve, *model, "--voice", name) for name in ("001", "xiaohe"))
    assert first != other
    assert spoken(cosyserve, *model) == first
    assert spoken(cosyserve, *model, "--default-voice", "xiaohe") == other
    cosyserve("prepare", str(speakers), "--out", "native", "--default-voice", "xiaohe")
    assert spoken(cosyserve, "--model", "native") == other
    assert spoken(cosyserve, "--model", "native", "--voice", "001") == first
    run = cosyserve("say", "hello", *model, "--default-voice", "carl", status=2)
    assert "'carl': there is no such voice; known: 001, xiaohe" in run.stderr
    (speakers / "spk2info.pt").write_bytes(b"rot")
    for words in (["say", "hello", *model], ["prepare", str(speakers), "--out", "broken"]):
        assert "spk2info.pt: " in cosyserve(*words, status=2).stderr
    assert "spk2info.pt: " in cosyserve("doctor", *model, status=1).stdout.decode()


@FAMILIES
def test_nobodys_voice_is_never_heard(
    home: Path, cosyserve: Command, family: str, request: pytest.FixtureRequest
) -> None:
    model = ("--model", str(request.getfixturevalue(family)))
    assert "no voice of its own" in cosyserve("say", "hello", *model, status=2).stderr
    assert not (home / "out.wav").exists()
    run = cosyserve("say", "hello", *model, "--voice", "me.wav", "--voice-text", "hello")
    assert "voice" not in run.stderr


def test_conversion(home: Path, cosyserve: Command) -> None:
    cosyserve("say", "--source", "me.wav", "--voice", "me.wav", "-o", "out.wav")
    assert len(decode(home / "out.wav").samples) == 3 * 24_000


def test_a_file_that_may_not_be_read_is_one_sentence(
    cosyserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(file: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(spk2info, "unpickle", forbidden)  # root may read every file
    run = cosyserve("voice", "import", "of/root/spk2info.pt", status=2)
    assert run.stderr == "error: of/root/spk2info.pt: Permission denied\n"
