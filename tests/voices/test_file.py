from __future__ import annotations

import contextlib
import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from cosyserve.contracts import Voice
from cosyserve.errors import StoreError, VoiceError
from cosyserve.voices.file import MAX_BYTES, from_bytes, load_voice, save_voice, to_bytes

RANDOM = np.random.default_rng(0)
VOICE = Voice(
    prompt_text="希望 you \N{GRINNING FACE}\n",
    speech_tokens=RANDOM.integers(0, 6561, 7).astype(np.int32),
    mel=RANDOM.standard_normal((14, 80), np.float32),
    embedding=RANDOM.standard_normal(192, np.float32),
    flow_start=3,
    name="Zoë",
    language="zh",
    fingerprint="0123",
    consent="asked",
    created="2025-01-01",
    source=RANDOM.standard_normal(50, np.float32),
    source_rate=44_100,
)
PRESET = Voice(
    "", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(192, np.float32), name="x"
)


def header_of(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


def rewritten(data: bytes, metadata: dict[str, str], **arrays: np.ndarray | None) -> bytes:
    kept = {name: array for name, array in (load(data) | arrays).items() if array is not None}
    return save(kept, header_of(data)["__metadata__"] | metadata)


@pytest.mark.parametrize("voice", [VOICE, PRESET, replace(VOICE, source=None)])
def test_round_trip(voice: Voice, tmp_path: Path) -> None:
    save_voice(voice, tmp_path / "new" / "a.safetensors")
    loaded = load_voice(tmp_path / "new" / "a.safetensors")
    for name in (field.name for field in fields(Voice)):
        ours, theirs = getattr(voice, name), getattr(loaded, name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)
        else:
            assert ours == theirs
    assert loaded.content_hash == voice.content_hash
    assert os.listdir(tmp_path / "new") == ["a.safetensors"]


def test_every_truncation_is_an_error() -> None:
    data = to_bytes(replace(VOICE, source=None, mel=np.zeros((14, 2), np.float32)))
    for size in range(len(data)):
        with pytest.raises(VoiceError, match=r"^f: "):
            from_bytes(data[:size], "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(VoiceError, match=r"^f: "):
        from_bytes(data, "f")


@given(st.integers(0, 2**32), st.integers(1, 255))
def test_a_changed_byte_is_found_or_harmless(position: int, change: int) -> None:
    """Only texts that are not the voice itself may change unseen, and the kept recording."""
    data = bytearray(to_bytes(VOICE))
    data[position % len(data)] ^= change
    with contextlib.suppress(VoiceError):
        assert from_bytes(bytes(data), "f").content_hash == VOICE.content_hash


@pytest.mark.parametrize(
    ("metadata", "arrays", "message"),
    [
        ({"format": "other"}, {}, "not a voice of cosyserve"),
        ({"version": "2"}, {}, "voice format '2'"),
        ({"flow_start": "8"}, {}, "flow_start 8 is outside"),
        ({"flow_start": "-1"}, {}, "'-1' is not a whole number"),
        ({"flow_start": "9" * 5000}, {}, "is not a whole number"),
        ({"source_rate": "1e3"}, {}, "is not a whole number"),
        ({"source_rate": "8000009"}, {}, "'source_rate' must be 8000..192000"),
        ({"prompt_text": "other"}, {}, "damaged"),
        ({"content_hash": ""}, {}, "damaged"),
        ({}, {"mel": None}, "'mel' is missing"),
        ({}, {"extra": np.zeros(1)}, "unexpected array 'extra'"),
        ({}, {"mel": np.zeros((14, 80))}, "'mel' is float64, expected float32"),
        ({}, {"speech_tokens": np.zeros(7, np.int64)}, "'speech_tokens' is int64"),
        ({}, {"speech_tokens": np.zeros(6, np.int32)}, "mel must have 12 frames"),
        ({}, {"speech_tokens": np.full(7, -1, np.int32)}, "must not be negative"),
        ({}, {"speech_tokens": np.zeros((7, 1), np.int32)}, "speech_tokens must be"),
        ({}, {"mel": np.zeros((14, 80, 1), np.float32)}, "mel must have"),
        ({}, {"mel": np.full((14, 80), np.nan, np.float32)}, "finite"),
        ({}, {"embedding": np.full(192, np.inf, np.float32)}, "finite"),
        ({}, {"mel": np.full((14, 80), 1e30, np.float32)}, "mel must be within ±100"),
        ({}, {"embedding": np.full(192, -1e30, np.float32)}, "embedding must be within ±10000"),
        ({}, {"embedding": np.zeros(0, np.float32)}, "embedding must be"),
        ({}, {"embedding": np.array(1.0, np.float32)}, "embedding must be"),
        ({}, {"source": np.full(50, np.nan, np.float32)}, "'source' must be"),
        ({}, {"source": np.zeros((5, 5), np.float32)}, "'source' must be"),
        ({}, {"source": np.zeros(5, np.int16)}, "'source' is int16"),
    ],
)
def test_wrong_content_is_named(metadata: dict, arrays: dict, message: str) -> None:
    with pytest.raises(VoiceError, match=r"^f: .*" + message):
        from_bytes(rewritten(to_bytes(VOICE), metadata, **arrays), "f")


def test_headers_that_are_none() -> None:
    good = to_bytes(VOICE)
    body = header_of(good)
    for header in (
        [],
        {"__metadata__": []},
        body | {"__metadata__": {"format": 1}},
        body | {"mel": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}},
        body | {"mel": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}},
        body | {"__metadata__": body["__metadata__"] | {"prompt_text": "\ud800"}},
    ):
        text = json.dumps(header).encode()
        with pytest.raises(VoiceError, match=r"^f: "):
            from_bytes(len(text).to_bytes(8, "little") + text + good[-6000:], "f")
    for text in (b"[" * 10**6, b'{"a":' * 10**5, b" " * (2 << 20)):
        with pytest.raises(VoiceError, match="f: not a voice file"):
            from_bytes(len(text).to_bytes(8, "little") + text, "f")
    with pytest.raises(VoiceError, match="f: larger than 64 MiB"):
        from_bytes(bytes(MAX_BYTES + 1), "f")


def test_places_that_hold_no_voice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("missing", ".", "pipe", "loop"):
        with pytest.raises(VoiceError, match=str(tmp_path)):
            load_voice(tmp_path / name)


def test_a_failed_write_leaves_the_old_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.safetensors"
    save_voice(VOICE, file)

    def full(*_: Any) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=r"a\.safetensors: can't be written: disk full"):
        save_voice(PRESET, file)
    assert os.listdir(tmp_path) == ["a.safetensors"]
    assert load_voice(file).content_hash == VOICE.content_hash
    with pytest.raises(VoiceError, match="surrogate"):
        save_voice(replace(VOICE, consent="\ud800"), file)
    with pytest.raises(StoreError, match="can't be written"):
        save_voice(VOICE, file / "below")
