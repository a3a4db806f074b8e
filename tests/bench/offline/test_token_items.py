"""Speech tokens from every place that has some."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.bench.offline.token_items import TokenDataset, TokenFile, TokenItem
from cosyserve.errors import InputError

NOISE = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
ROW = {"id": "a", "target_audio_cosy2_tokens": [1, 2, 3]}


def read(folder: Path, name: str, content: str) -> list[TokenItem]:
    (folder / "me.wav").write_bytes(encode(NOISE, AudioFormat.WAV))
    (folder / name).write_text(content)
    return TokenFile(folder / name).items()


def test_json_lines(tmp_path: Path) -> None:
    prompted = ROW | {
        "id": "b",
        "prompt_text": "Words.",
        "prompt_audio": "me.wav",
        "prompt_audio_cosy2_tokens": [7, 8],
    }
    one, two = read(tmp_path, "t.jsonl", f"{json.dumps(ROW)}\n\n{json.dumps(prompted)}\n")
    assert one == TokenItem("a", (1, 2, 3))
    assert (two.id, two.tokens, two.prompt_tokens) == ("b", (1, 2, 3), (7, 8))
    assert two.recording
    assert (two.recording.text, len(two.recording.samples)) == ("Words.", 24_000)


def test_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "said.npy", np.array([5, 6], np.int16))
    assert TokenFile(tmp_path / "said.npy").items() == [TokenItem("said", (5, 6))]


def test_a_manifest(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "t.txt", "a|Words.|me.wav|5 6, 7")
    assert (item.id, item.tokens) == ("a", (5, 6, 7))
    assert item.recording
    assert item.recording.text == "Words."


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", "", "has no tokens"),
        ("t.jsonl", "{", r"t\.jsonl, line 1 is no JSON"),
        ("t.jsonl", "[1]", r'line 1: write \{"id"'),
        ("t.jsonl", json.dumps(ROW | {"target_audio_cosy2_tokens": []}), "at least one"),
        ("t.jsonl", json.dumps(ROW | {"target_audio_cosy2_tokens": [1, -1]}), "whole numbers"),
        ("t.jsonl", json.dumps(ROW | {"target_audio_cosy2_tokens": "12"}), "whole numbers"),
        ("t.jsonl", json.dumps(ROW | {"prompt_audio_cosy2_tokens": [1]}), "needs prompt_audio"),
        ("t.jsonl", json.dumps(ROW | {"prompt_audio": "no.wav"}), "prompt_audio no.wav"),
        ("t.npy", "no array", r"t\.npy can't be read"),
        ("t.txt", "a|Words.|me.wav|a sentence", "the last field must be tokens"),
        ("t.txt", "a|Words.|me.wav", "found 3 fields"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, name, content)


@pytest.mark.parametrize("name", ["no.npy", "no.jsonl", "no.txt"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="can't be read"):
        TokenFile(tmp_path / name).items()


@pytest.mark.parametrize("array", [np.zeros((2, 2), np.int64), np.zeros(2), np.zeros((), int)])
def test_an_array_of_something_else(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(InputError, match="whole numbers"):
        TokenFile(tmp_path / "t.npy").items()


class Rows(list[dict[str, Any]]):
    @property
    def column_names(self) -> list[str]:
        return list(self[0])


def test_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = {"array": NOISE.astype(np.float64), "sampling_rate": 16_000}
    row = ROW | {"prompt_text": "Words.", "prompt_audio": audio}
    rows = Rows([row | {"prompt_audio_cosy2_tokens": [7]}])
    hub = SimpleNamespace(load_dataset=lambda name, split: rows)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    (item,) = TokenDataset("some/one", "test").items()
    assert (item.tokens, item.prompt_tokens) == ((1, 2, 3), (7,))
    assert item.recording
    assert item.recording.rate == 16_000
    rows[0] = ROW
    with pytest.raises(InputError, match="lacks the columns prompt_audio, prompt_audio_cosy2"):
        TokenDataset("some/one", "test").items()
