from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.contracts import VoiceError
from cosyserve.voices.file import save_voice
from cosyserve.voices.store import FolderStore
from tests.voices.test_file import PRESET, VOICE


def test_put_get_list_remove(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "voices")
    assert store.names() == []
    with pytest.raises(VoiceError, match=r"no voice named 'ann' \(known: none yet\)"):
        store.get("ann")
    assert store.put("ann", VOICE) == tmp_path / "voices" / "ann.safetensors"
    for name in ("b.c-d_1", "中文女", "中" * 64):
        store.put(name, PRESET)
        assert store.get(name).content_hash == PRESET.content_hash
        assert name in store.names()
    assert store.names()[:2] == ["ann", "b.c-d_1"]
    assert store.get("ann").content_hash == VOICE.content_hash
    store.put("ann", PRESET)
    assert store.get("ann").content_hash == PRESET.content_hash
    store.remove("ann")
    assert "ann" not in store.names()
    with pytest.raises(VoiceError, match="no voice named 'ann'"):
        store.remove("ann")


def test_voices_of_the_model(tmp_path: Path) -> None:
    shipped = tmp_path / "model" / "default.safetensors"
    save_voice(VOICE, shipped)
    store = FolderStore(tmp_path / "voices", [shipped])
    assert store.names() == ["default"]
    with pytest.raises(VoiceError, match="part of the model and can't be removed"):
        store.remove("default")
    store.put("default", PRESET)
    assert store.get("default").content_hash == PRESET.content_hash
    store.remove("default")
    assert store.get("default").content_hash == VOICE.content_hash
    shipped.unlink()
    with pytest.raises(VoiceError, match=r"default\.safetensors: can't be read"):
        store.get("default")


NOT_NAMES = (
    *("", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a b", "a\n", "a\0", ".hidden", "-rf"),
    *("e\u0301", "／", "x" * 65, "𠀀" * 64, "\ud800", "a%2fb", "~", "$HOME", "con:"),
)


@pytest.mark.parametrize("name", NOT_NAMES)
def test_names_that_could_leave_the_folder(name: str, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "voices")
    for use in (store.get, store.remove, store.check_name, lambda name: store.put(name, VOICE)):
        with pytest.raises(VoiceError, match="can't be a voice's name"):
            use(name)
    assert os.listdir(tmp_path) == []


@given(st.text(max_size=70))
def test_any_name_is_safe_or_refused(name: str) -> None:
    try:
        FolderStore.check_name(name)
    except VoiceError:
        return
    assert Path("/voices", f"{name}.safetensors").resolve().parent == Path("/voices")


def test_strange_things_in_the_folder(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("ann", VOICE)
    (tmp_path / "dir.safetensors").mkdir()
    (tmp_path / ".half.safetensors").write_bytes(b"")
    (tmp_path / "a b.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    (tmp_path / "broken.safetensors").write_bytes(b"junk")
    assert store.names() == ["ann", "broken"]
    with pytest.raises(VoiceError, match=r"broken\.safetensors: not a voice file"):
        store.get("broken")
    with pytest.raises(VoiceError, match=r"dir\.safetensors: not a file"):
        store.get("dir")
    with pytest.raises(VoiceError, match=r"dir\.safetensors: can't be removed"):
        store.remove("dir")
    with pytest.raises(VoiceError, match="no voice named 'gone'"):
        store.get("gone")
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert FolderStore(file).names() == []
    with pytest.raises(VoiceError, match="can't be written"):
        FolderStore(file).put("ann", replace(VOICE, name="ann"))
