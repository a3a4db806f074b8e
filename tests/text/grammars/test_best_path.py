"""Word for word what the library of the grammars finds."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from wetext.utils import load_fst

from cosyserve.errors import CosyError
from cosyserve.text.grammars import best_path
from cosyserve.text.grammars.best_path import BestPath
from cosyserve.text.grammars.transducer import Transducer
from cosyserve.text.language import Language
from tests.text.number_rules.corpus import KINDS, Draw

Taggers = dict[Language, tuple[BestPath, Any]]


@pytest.fixture(scope="module")
def taggers() -> Taggers:
    def both(name: str) -> tuple[BestPath, Any]:
        file = f"{name}/tn/tagger.fst"
        data = files("wetext.fsts").joinpath(file).read_bytes()
        return BestPath(Transducer(data)), load_fst(file)

    return {language: both(language.value) for language in KINDS}


@pytest.mark.parametrize(
    ("language", "kind"), [(language, kind) for language in KINDS for kind in KINDS[language]]
)
def test_numbers_of_every_kind(taggers: Taggers, language: Language, kind: str) -> None:
    ours, theirs = taggers[language]
    draw = Draw(kind)
    for text in [KINDS[language][kind](draw) for _ in range(5)]:
        assert ours(text) == theirs(text)


@pytest.mark.parametrize("language", list(KINDS))
def test_what_is_no_number(taggers: Taggers, language: Language) -> None:
    ours, theirs = taggers[language]
    draw = Draw("odd")
    odd = ("".join(draw.choice("0123456789.,:/-a@$% 年é\t") for _ in range(12)) for _ in range(20))
    for text in ["", "a", "1\x002", "\x00", "\n1", "½", "1\u0300", *odd]:
        assert ours(text) == theirs(text)


@pytest.mark.parametrize(
    ("text", "tagged"),
    [  # each has several readings of the same weight
        ("$82", 'money { currency_maj: "dollars" integer_part: "eighty two" } '),
        ("1104", 'date { year: "eleven oh four" } '),
        ("2st", 'cardinal { integer: "two" } w { v: "st" } '),
    ],
)
def test_of_equal_readings_the_same_is_found(taggers: Taggers, text: str, tagged: str) -> None:
    ours, theirs = taggers[Language.ENGLISH]
    assert ours(text) == theirs(text) == tagged


def test_what_is_kept_for_the_next_text_has_a_bound(
    taggers: Taggers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = taggers[Language.CHINESE]
    first = ours("湖人3:2勇士")
    kept = sum(map(len, ours._steps))
    monkeypatch.setattr(best_path, "KEPT_STEPS", 0)
    assert ours("湖人3:2勇士") == first
    assert sum(map(len, ours._steps)) <= kept


def test_another_format_is_told() -> None:
    with pytest.raises(CosyError, match="wetext"):
        Transducer(b"\xd6\xfd\xb2\x7e\x05\x00\x00\x00const")
