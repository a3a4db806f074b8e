from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.errors import MissingVoiceError, VoiceError
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.store import open_store
from tests.voices.test_file import PRESET, VOICE

SHIPPED = {"default": PRESET, "ann": replace(PRESET, name="shipped")}


def test_what_a_name_means(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    library = VoiceLibrary(store, lambda: SHIPPED)
    assert library.names() == {"ann": True, "default": True}
    assert library.get("ann") is SHIPPED["ann"]
    store.put("ann", VOICE)
    store.put("bea", VOICE)
    assert library.names() == {"ann": False, "bea": False, "default": True}
    assert library.get("ann").content_hash == VOICE.content_hash  # the stored one wins
    assert not library.is_shipped("ann", library.get("ann"))
    store.remove("ann")
    assert library.is_shipped("ann", library.get("ann"))
    with pytest.raises(MissingVoiceError):
        library.get("carl")


def test_default_is_the_models_whatever_lies_in_the_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("ann", VOICE)
    (tmp_path / "ann.safetensors").rename(tmp_path / "default.safetensors")
    library = VoiceLibrary(store, lambda: SHIPPED)
    assert library.get("default") is PRESET
    assert library.names()["default"]


def test_a_broken_stored_voice_is_not_replaced_by_the_models(tmp_path: Path) -> None:
    (tmp_path / "ann.safetensors").write_bytes(b"rot")
    with pytest.raises(VoiceError, match="not a voice file"):
        VoiceLibrary(open_store(str(tmp_path)), lambda: SHIPPED).get("ann")
