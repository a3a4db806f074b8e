"""The rules read as the grammars do. `corpus.py` compares as many more as one has time for."""

import json
from pathlib import Path

import pytest

from cosyserve.text import numbers, spoken_text
from cosyserve.text.language import Language
from cosyserve.text.number_rules.chinese import read_chinese
from cosyserve.text.number_rules.english import read_english
from tests.text.number_rules.corpus import CHINESE, ENGLISH, differences

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("kind", ENGLISH)
def test_english_is_read_as_by_the_grammar(kind: str) -> None:
    known, wrong = differences(kind, Language.ENGLISH, 12, seed=0)
    assert known
    assert wrong == []


@pytest.mark.parametrize("kind", CHINESE)
def test_chinese_is_read_as_by_the_grammar(kind: str) -> None:
    known, wrong = differences(kind, Language.CHINESE, 80, seed=0)
    assert known
    assert wrong == []


@pytest.mark.parametrize("file", ["text_frontend.json", "cv3text.json"])
def test_golden_texts_sound_as_without_rules(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    items = json.loads((GOLDEN / file).read_text(encoding="utf-8"))["items"]
    texts = [item["text"] for item in items if len(item["text"]) < 400]
    with_rules = [spoken_text(text) for text in texts]
    monkeypatch.setattr(numbers, "read_english", lambda written: None)
    monkeypatch.setattr(numbers, "read_chinese", lambda clause: None)
    monkeypatch.setattr(numbers, "GRAMMAR_CHARACTERS", dict.fromkeys(Language, 10**6))
    assert with_rules == [spoken_text(text) for text in texts]


@pytest.mark.parametrize(
    "clause",
    [
        "湖人3:2勇士", "比分3-2好", "尾号1234", "USD5", "USD 5", "5 km/h", "90后", "3个到5个",
        "3+2", "5m²", "３个", "M.V.P3", "A-B有3", "10.25", "2024.05", "007个", "123456789个",
        "3%个",
    ],
)  # fmt: skip
def test_chinese_that_needs_weighing_is_left_to_the_grammar(clause: str) -> None:
    assert read_chinese(clause) is None


@pytest.mark.parametrize(
    "written", ["24:30", "February 32", "1901 million", "NO66", "0.05kg", "4st", "May 5", "1300-42"]
)
def test_english_that_needs_weighing_is_left_to_the_grammar(written: str) -> None:
    assert read_english(written) is None
