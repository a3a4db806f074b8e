"""The rules read as the grammars do. `corpus.py` compares as many more as one has time for."""

import json
from pathlib import Path

import pytest

from cosyserve.text import numbers, spoken_text
from cosyserve.text.language import Language
from cosyserve.text.number_rules.chinese import read_chinese
from cosyserve.text.number_rules.english import read_english
from tests.text.number_rules.corpus import KINDS, differences, grammar

GOLDEN = Path(__file__).parents[2] / "golden"


READINGS = json.loads(Path(__file__).with_name("readings.json").read_text("utf-8"))
EVERY_KIND = [(language, kind) for language in KINDS for kind in KINDS[language]]


@pytest.mark.parametrize(("language", "kind"), EVERY_KIND)
def test_numbers_are_read_as_the_grammars_were_found_to(language: Language, kind: str) -> None:
    assert len(READINGS[language][kind]) > 5
    assert differences(READINGS[language][kind], language) == []


@pytest.mark.parametrize(("language", "kind"), EVERY_KIND)
def test_the_grammars_read_as_they_did(language: Language, kind: str) -> None:
    shortest = min(READINGS[language][kind], key=len)
    assert grammar(shortest, language) == READINGS[language][kind][shortest]


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
    "written", ["24:30", "February 32", "1901 million", "NO66", "2.5-3", "4st", "May 5", "1300-42"]
)
def test_english_that_needs_weighing_is_left_to_the_grammar(written: str) -> None:
    assert read_english(written) is None
