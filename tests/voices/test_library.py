from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.contracts import Voice
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
    assert not library.is_shipped(library.get("ann"))
    store.remove("ann")
    assert library.is_shipped(library.get("ann"))
    with pytest.raises(MissingVoiceError, match=r"no voice named 'carl' \(known: ann, bea\)"):
        library.get("carl")
    with pytest.raises(MissingVoiceError, match="can't be a voice's name"):
        library.get("../carl")


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


def test_a_setting_says_which_voice_default_is(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("bea", VOICE)
    assert VoiceLibrary(store, lambda: SHIPPED, "ann").get("default") is SHIPPED["ann"]
    assert VoiceLibrary(store, lambda: SHIPPED, "default").get("default") is PRESET
    library = VoiceLibrary(store, lambda: SHIPPED, "bea")
    assert library.names() == {"ann": True, "bea": False, "default": False}
    store.remove("bea")
    assert library.get("default").content_hash == VOICE.content_hash  # no store is asked


@pytest.mark.parametrize("shipped", [SHIPPED, {}])
def test_a_default_that_is_not_there_is_refused_with_the_known_names(
    tmp_path: Path, shipped: dict[str, Voice]
) -> None:
    store = open_store(str(tmp_path))
    known = "ann" if shipped else "none yet"
    with pytest.raises(MissingVoiceError, match=f"'carl': there is no such voice; known: {known}"):
        VoiceLibrary(store, lambda: shipped, "carl")
    store.put("bea", VOICE)
    with pytest.raises(MissingVoiceError, match=r"known: .*bea"):
        VoiceLibrary(store, lambda: shipped, "../carl")


def test_a_model_without_a_voice_says_how_to_get_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    library = VoiceLibrary(store, dict)
    assert library.names() == {}
    with pytest.raises(
        VoiceError, match=r"no voice of its own.*voice add.*--default-voice"
    ) as told:
        library.get("default")
    assert not isinstance(told.value, MissingVoiceError)  # which would be a 404
    store.put("bea", VOICE)
    assert VoiceLibrary(store, dict, "bea").names() == {"bea": False, "default": False}
