from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text.abbreviations import ABBREVIATIONS, Abbreviation, expand_abbreviations
from cosyserve.text.split import ends_in_abbreviation


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Call me, e.g. after lunch.", "Call me, for example after lunch."),
        ("E.g., apples, i.e. food", "for example, apples, that is food"),
        ("Cats, dogs, etc. Then", "Cats, dogs, et cetera. Then"),
        ("Acme Inc. grew, Ltd. too", "Acme incorporated grew, limited too"),
        ("'Dr. Wu' vs. Mrs Jones, DR. WHO", "'doctor Wu' versus missus Jones, doctor WHO"),
        ("Gen Z, one more rep. Sen. Lee", "Gen Z, one more rep. senator Lee"),
        ("St. Paul on Mt. Rainier", "saint Paul on mount Rainier"),
        ("The U.S. Army, U.S.A today", "The U S Army, U S ay today"),
        ("Louis XIV., part IX, World War II", "Louis fourteen., part nine, World War two"),
        ("I, V and X, IIII, VX", "I, V and X, IIII, V X"),
        ("Apt. 5 on Park Ave. in Aug. or FYI", "apartment 5 on Park avenue. in august or F Y I"),
        ("Vitamin C. It is good.", "Vitamin C. It is good."),
        ("Nine AM, the 'BBC', NASA, VS Code", "Nine ay M, the 'B B C', NASA, V S Code"),
        ("The FBI's CEOs", "The F B I's C E O's"),
        ("A Ph.D. from UCLA, WWW.", "A P H D from U C L ay, double you double you double you."),
        ("<|im_end|>[mn] BBC", "<|im_end|>[mn] B B C"),
        ("example.com, don't", "example.com, don't"),
        ("", ""),
    ],
)
def test_abbreviations_are_read_as_words_and_letters(written: str, spoken: str) -> None:
    assert expand_abbreviations(written) == spoken


@given(st.lists(st.sampled_from(["Dr.", "Wu", "U.S.", "etc.", "I", "AM", "St.", "e.g.,", "A."])))
def test_a_word_is_read_the_same_beside_any_other(words: list[str]) -> None:
    assert expand_abbreviations(" ".join(words)) == " ".join(map(expand_abbreviations, words))


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9)
MARK = st.sampled_from(["", ",", "!", "?"])
# A capital alone is spelled, and so are several of it (Ws).
NAME = st.builds(str.__add__, st.sampled_from("ABIWZ"), LETTERS.filter(lambda rest: rest != "s"))
WORD = st.builds(str.__add__, LETTERS | NAME, MARK)


@given(st.lists(WORD, max_size=8))
def test_plain_words_stay(words: list[str]) -> None:
    known = {"vs", "etc", "dr", "mr", "mrs", "ms"}
    words = [word for word in words if word.strip(",!?").lower() not in known]
    assert expand_abbreviations(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize("entry", ABBREVIATIONS, ids=lambda entry: entry.written)
def test_an_entry_of_the_table_is_read_and_ends_no_sentence(entry: Abbreviation) -> None:
    text = f"so {entry.written}. on"
    assert ends_in_abbreviation(text, text.index(". on")) is not entry.may_end_sentence
    if entry.words:
        dot = "." if entry.keeps_dot else ""
        assert expand_abbreviations(text) == f"so {entry.words}{dot} on"
        assert (expand_abbreviations(entry.written) == entry.words) is (
            "." in entry.written or not entry.needs_dot
        )
