"""What holds of every store, in a folder and in Redis, and what is a folder's own."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import MissingVoiceError, StoreError, VoiceError
from cosyserve.voices.store import HEAD_BYTES, VoiceStore, check_name, open_store
from tests.redis_server import RedisServer, redis_running
from tests.voices.test_file import PRESET, VOICE


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["folder", pytest.param("redis", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> VoiceStore:
    if request.param == "folder":
        return open_store(str(tmp_path / "voices"))
    store = open_store(request.getfixturevalue("redis").url)
    for name in store.names():
        store.remove(name)
    return store


def test_put_get_list_remove(store: VoiceStore) -> None:
    assert store.names() == []
    with pytest.raises(MissingVoiceError, match=r"no voice named 'ann' \(known: none yet\)"):
        store.get("ann")
    assert store.put("ann", VOICE).count("ann") == 1
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
    for use in (store.get, store.remove):
        with pytest.raises(MissingVoiceError, match="no voice named 'ann'"):
            use("ann")


def test_a_name_is_given_once(store: VoiceStore) -> None:
    assert store.add("ann", VOICE)
    assert not store.add("ann", PRESET)
    assert store.get("ann").content_hash == VOICE.content_hash
    voices = [replace(VOICE, created=str(number)) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda voice: store.add("bea", voice), voices))
    assert sum(won) == 1
    assert store.get("bea").created == str(won.index(True))


def test_a_voice_is_read_once_until_it_changes(store: VoiceStore) -> None:
    long = replace(VOICE, mel=np.zeros((400, 80), np.float32), speech_tokens=np.arange(200))
    long = replace(long, speech_tokens=long.speech_tokens.astype(np.int32))
    store.put("ann", long)
    first = store.get("ann")
    assert store.get("ann") is first
    store.put("ann", replace(long, consent="another"))
    assert store.get("ann").consent == "another"
    store.put("bea", long)  # the same content, other words around it
    assert store.get("bea").consent == long.consent


def test_a_consent_that_was_removed_stays_removed(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    consents = store.consents
    kept = consents.add("Ada", "en", b"audio")
    assert consents.rename(kept.id, "Bea") == replace(kept, name="Bea")
    shelf = consents._shelf
    read = shelf.read

    def read_and_lose(name: str, max_bytes: int) -> bytes | None:
        data = read(name, max_bytes)
        assert consents.remove(name)
        return data

    monkeypatch.setattr(shelf, "read", read_and_lose)
    assert consents.rename(kept.id, "Cid") is None
    assert list(shelf.names()) == []


def test_texts_that_fill_the_head_of_the_file(store: VoiceStore) -> None:
    voice = replace(VOICE, prompt_text="words " * HEAD_BYTES)
    store.put("ann", voice)
    assert store.get("ann").prompt_text == store.get("ann").prompt_text == voice.prompt_text


NOT_NAMES = (
    *("", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a b", "a\n", "a\0", ".hidden", "-rf"),
    *("e\u0301", "／", "x" * 65, "𠀀" * 64, "\ud800", "a%2fb", "~", "$HOME", "con:", "*", "a*"),
)


@pytest.mark.parametrize("name", NOT_NAMES)
def test_names_that_could_leave_the_folder(name: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "voices"))
    for use in (check_name, lambda name: store.put(name, VOICE), lambda n: store.add(n, VOICE)):
        with pytest.raises(VoiceError, match="can't be a voice's name"):
            use(name)
    for look in (store.get, store.remove):
        with pytest.raises(MissingVoiceError, match="can't be a voice's name"):
            look(name)
    assert os.listdir(tmp_path) == []


def test_nothing_is_kept_as_default(store: VoiceStore) -> None:
    for keep in (store.put, store.add):
        with pytest.raises(VoiceError, match="--default-voice or the model"):
            keep("default", VOICE)
    for look in (store.get, store.remove):
        with pytest.raises(MissingVoiceError):
            look("default")


@given(st.text(max_size=70))
def test_any_name_is_safe_or_refused(name: str) -> None:
    try:
        check_name(name)
    except VoiceError:
        return
    assert Path("/voices", f"{name}.safetensors").resolve().parent == Path("/voices")


def test_strange_things_in_the_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("ann", VOICE)
    (tmp_path / "dir.safetensors").mkdir()
    (tmp_path / ".half.safetensors").write_bytes(b"")
    (tmp_path / "a b.safetensors").write_bytes(b"")
    (tmp_path / "default.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    (tmp_path / "broken.safetensors").write_bytes(b"junk")
    assert store.names() == ["ann", "broken"]
    with pytest.raises(VoiceError, match=r"^voice 'broken': not a voice file"):
        store.get("broken")
    with pytest.raises(VoiceError, match=r"^'dir': not a file"):
        store.get("dir")
    with pytest.raises(VoiceError, match=r"^'dir': not a file"):
        store.remove("dir")
    with pytest.raises(MissingVoiceError, match="no voice named 'gone'"):
        store.get("gone")
    late = open_store(str(tmp_path / "file"))
    (tmp_path / "file").write_bytes(b"")
    assert late.names() == []
    for keep in (late.put, late.add):
        with pytest.raises(StoreError, match="can't be written"):
            keep("ann", replace(VOICE, name="ann"))


def test_a_voice_that_is_removed_while_it_is_read_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    store.put("ann", VOICE)
    opened = Path.open

    def too_late(file: Path, mode: str) -> IO[Any]:
        file.unlink()
        return opened(file, mode)

    monkeypatch.setattr(Path, "open", too_late)
    with pytest.raises(MissingVoiceError, match="no voice named 'ann'"):
        store.get("ann")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("ann", VOICE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StoreError, match="can't be listed: Too many open files"):
            store.names()
        with pytest.raises(StoreError, match="can't be read: Too many open files"):
            store.find("ann")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert store.names() == ["ann"]


def test_a_folder_that_may_not_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(folder: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", scandir)  # root may list every folder
    with pytest.raises(StoreError, match="can't be listed: Permission denied"):
        open_store(str(tmp_path)).names()
