"""Words as clients see them, and what they sound like."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.alignment.sounds import KINDS, SOUNDS, kinds_by_sound
from cosyserve.alignment.words import Pause, Words

TEXTS = st.text(st.sampled_from("ab1,.?! “(（你好，。é-'$\n"), max_size=40)


def words_of(*pieces: str, language: str = "", said: dict[str, str] | None = None) -> Words:
    words = Words(language, said)
    for piece in pieces:
        words.push(piece)
    words.end()
    return words


def heard(text: str, **options: str) -> str:
    (word,) = words_of(text, **options).known  # type: ignore[arg-type]
    return "".join(KINDS[sound] if sound < len(SOUNDS) else "?" for sound in word.sounds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hi there, you!", ["Hi", "there,", "you!"]),
        ("“Well” – he said (no).", ["“Well” –", "he", "said", "(no)."]),
        ("你好，“朋友”！", ["你", "好，", "“朋", "友”！"]),
        ("用API吧。", ["用", "API", "吧。"]),
        ("<strong>So</strong> it [laughter] is", ["So", "it", "is"]),
        ("Say it sadly.<|endofprompt|>Oh no", ["Oh", "no"]),
        (" … ", []),
    ],
)
def test_words_keep_their_marks(text: str, words: list[str]) -> None:
    assert [word.text for word in words_of(text).known] == words


@given(TEXTS, st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=100)
def test_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    whole = words_of(text).known
    assert [word.text for word in words_of(*pieces).known] == [word.text for word in whole]
    for word in whole:
        assert text[: word.characters].endswith(word.text)
    spoken = "".join(word.text for word in whole)
    if whole:  # nothing but blanks is lost, apart from marks before the first word
        assert re.sub(r"\s", "", text).endswith(re.sub(r"\s", "", spoken))


def test_a_word_waits_for_its_end_and_marks_for_none() -> None:
    words = Words()
    words.push("Hel")
    assert words.known == []
    words.push("lo ")
    assert [word.text for word in words.known] == ["Hello"]
    words.push(", 你")
    assert [word.text for word in words.known] == ["Hello ,", "你"]
    assert words.known[0].pause is Pause.BREAK


def test_sounds() -> None:
    assert heard("ship") == "ʃɪp"
    assert heard("3") == heard("three")
    assert heard("nginx", said={"nginx": "engine x"}) == heard("engine-x")  # type: ignore[arg-type]
    assert heard("Schuh", language="de") == "?????"
    assert len(words_of("他有25个。").known[2].sounds) == 6  # 二十五
    assert heard("☺a☺") != ""


def test_every_kind_can_be_heard() -> None:
    table = kinds_by_sound()
    assert table.shape == (len(KINDS), len(SOUNDS))
    assert (table.max(1) >= 0.5).all()
