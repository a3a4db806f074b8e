import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text.number_rules.numerals import NumOutOfRangeError, in_words, spell_digits


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("0", "zero"),
        ("007", "seven"),
        ("21", "twenty-one"),
        ("110", "one hundred and ten"),
        ("1000", "one thousand"),
        ("1001", "one thousand and one"),
        ("1100", "one thousand, one hundred"),
        ("1999", "one thousand, nine hundred and ninety-nine"),
        ("1000100", "one million, one hundred"),
        ("1001000", "one million, one thousand"),
        ("٣", "three"),
        ("1" + "0" * 33, "one decillion"),
        ("1" * 37, " ".join(["one"] * 37)),
    ],
)
def test_in_words(digits: str, words: str) -> None:
    assert in_words(digits) == words


def test_spells_runs_of_digits_and_keeps_superscripts() -> None:
    assert spell_digits("GPT-4 in m²") == "GPT-four in m²"
    assert spell_digits("m²", frozenset()) == "mzero"


def test_the_original_had_no_words_beyond_decillions() -> None:
    with pytest.raises(NumOutOfRangeError):
        spell_digits("1" * 37, frozenset())


@given(st.text(st.sampled_from("0٣²①1x ")))
def test_no_decimal_digit_is_left(text: str) -> None:
    assert not any(map(str.isdecimal, spell_digits(text)))
