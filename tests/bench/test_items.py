"""Where items come from, and what is said when they can't."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.bench.items import HubDataset, Item, Manifest, Sentences, repeated
from cosyserve.bench.sentences import ENGLISH, MANDARIN
from cosyserve.errors import InputError

RECORDING = encode(np.zeros(2400, np.float32), AudioFormat.WAV)


def manifest(folder: Path, *lines: str) -> Manifest:
    (folder / "prompts").mkdir(exist_ok=True)
    (folder / "prompts" / "one.wav").write_bytes(RECORDING)
    path = folder / "list.txt"
    path.write_text("\n".join(lines), "utf-8")
    return Manifest(path)


def test_our_sentences_are_many_and_different() -> None:
    items = Sentences().items(None)
    assert (len(ENGLISH), len(MANDARIN)) == (40, 10)
    assert {item.text for item in items} == {*ENGLISH, *MANDARIN}
    assert len({item.id for item in items}) == 50
    lengths = [len(text) for text in ENGLISH]
    assert min(lengths) < 10
    assert max(lengths) > 200


def test_a_few_sentences_are_a_mixture() -> None:
    ids = [item.id for item in Sentences().items(5)]
    assert ids == ["en-01", "en-02", "en-03", "en-04", "zh-01"]


@pytest.mark.parametrize(("language", "texts"), [("en", ENGLISH), ("zh", MANDARIN)])
def test_sentences_of_one_language(language: str, texts: tuple[str, ...]) -> None:
    assert [item.text for item in Sentences(language).items(None)] == list(texts)


def test_a_language_without_sentences_is_refused() -> None:
    with pytest.raises(InputError, match="sentences in en and zh, not in 'fr'"):
        Sentences("fr")


def test_a_manifest_names_recordings_relative_to_itself(tmp_path: Path) -> None:
    source = manifest(
        tmp_path, "a|What I said.|prompts/one.wav|你好。", "", "b|x|prompts/one.wav|y"
    )
    first, second = source.items(None)
    assert (first.id, first.text, second.id) == ("a", "你好。", "b")
    assert first.reference is not None
    assert first.reference.text == "What I said."
    assert base64.b64decode(first.reference.audio) == RECORDING
    assert source.items(1) == [first]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a|b|c", "line 2: write id|prompt_text|prompt_wav|target_text; found 3 fields"),
        ("a|b|prompts/one.wav|c|d", "found 5 fields"),
        ("a|b|none.wav|c", "none.wav can't be read: No such file"),
        ("a|b|prompts/one.wav|", "line 2: id and target_text must not be empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        manifest(tmp_path, "a|b|prompts/one.wav|c", line).items(None)
    assert complaint in str(error.value)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt can't be read"):
        Manifest(tmp_path / "nowhere.txt").items(None)


class Rows(list[dict[str, Any]]):
    """As much of a dataset as is read."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0])


def row(**changes: Any) -> dict[str, Any]:
    audio = {"array": np.full(1600, 0.5), "sampling_rate": 16_000}
    return {"id": 7, "prompt_text": "p", "prompt_audio": audio, "target_text": "t"} | changes


def test_rows_of_a_dataset_become_items(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, split: str) -> Rows:
        asked.append((name, split))
        return Rows([row(), row(id=8)])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    (item,) = HubDataset("someone/speech", "test_en").items(1)
    assert asked == [("someone/speech", "test_en")]
    assert (item.id, item.text) == ("7", "t")
    assert item.reference is not None
    audio = decode(base64.b64decode(item.reference.audio))
    assert (audio.rate, len(audio.samples)) == (16_000, 1600)
    assert audio.samples == pytest.approx(0.5, abs=1e-4)


def test_missing_columns_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([{"id": 1, "text": "t"}])
    module = SimpleNamespace(load_dataset=lambda name, split: rows)
    monkeypatch.setitem(sys.modules, "datasets", module)
    with pytest.raises(
        InputError, match="lacks the columns prompt_audio, prompt_text, target_text"
    ):
        HubDataset("someone/speech", "test").items(None)


def test_a_dataset_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str, split: str) -> Rows:
        raise FileNotFoundError("no such dataset on the hub")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(InputError, match=r"'test' of the dataset 'no/such'.*no such dataset"):
        HubDataset("no/such", "test").items(None)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="pip install datasets"):
        HubDataset("someone/speech", "test").items(None)


def test_items_repeat_under_new_names() -> None:
    items = [Item("a", "A"), Item("b", "B")]
    assert [item.id for item in repeated(items, 5)] == ["a", "b", "a-2", "b-2", "a-3"]
    assert [item.text for item in repeated(items, 5)] == ["A", "B", "A", "B", "A"]
    assert repeated(items, 1) == items[:1]
