import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import CosyError
from cosyserve.text import spoken_text
from cosyserve.text.language import Language
from cosyserve.text.numbers import Allowance, _grammar, read_aloud, read_numbers


def test_reads_as_the_original_did() -> None:
    assert read_numbers("It's 50% off?", Language.ENGLISH) == "It ' s fifty percent off ? "
    assert read_numbers("1", Language.ENGLISH) == "one "
    assert read_numbers("房号202", Language.CHINESE) == "房号二零二"
    assert read_numbers("No. Dr. Who", Language.ENGLISH) == "No. Dr. Who"


def test_says_what_to_install_when_the_grammar_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _grammar.cache_clear()
    read_numbers.cache_clear()
    monkeypatch.setitem(sys.modules, "wetext.token_parser", None)
    with pytest.raises(CosyError, match="wetext"):
        spoken_text("3+2个")


def test_what_a_grammar_may_not_read_is_read_number_by_number() -> None:
    def unread(stretch: str, language: Language) -> str:
        raise AssertionError(stretch)

    text = "At 5.5GB/2d, 12:75 or 1,250x7!"
    said = read_aloud(text, Language.ENGLISH, unread, allowance=Allowance(0))
    expected = "At five point five GB/ two d, twelve: seventy five or one thousand two hundred and"
    assert "".join(said) == f"{expected} fifty x seven!"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("2,500.75k", "two thousand five hundred point seven five k"),
        (".5mg", "point five mg"),
        ("192.168.10.17", "one hundred and ninety two point one hundred and sixty eight"),
    ],
)
def test_beyond_the_share_a_point_is_no_end_of_a_sentence(written: str, said: str) -> None:
    words = "".join(read_aloud(written, Language.ENGLISH, read_numbers, allowance=Allowance(0)))
    assert words.startswith(said)
    assert "." not in words


@pytest.mark.parametrize(
    "text",
    ["1" * 4000, "1" * 4000 + "个", "3 " * 2000, "#1" * 2000, "￥1" * 2000, "1,250 " * 600,
     "今天3" * 1300, "a-" * 2000 + "1", "1-" * 2000, "A" * 4000 + "1", "1%-" * 1300, "1 个" * 1300],
)  # fmt: skip
def test_reads_what_nobody_says(text: str) -> None:
    assert "1" not in spoken_text(text)


@pytest.mark.parametrize(
    "text", ["😀3#1", "\u200f3\u202e4 cats", "个\ud8003个", "\ud8003 m", "3\x00个", "3\x00", "{3\\"]
)
def test_strange_characters_do_no_harm(text: str) -> None:
    assert not any(map(str.isdecimal, spoken_text(text)))


@settings(deadline=None, max_examples=60)
@given(st.text(st.sampled_from("0123 .,:/-+%$#'\"()\\mkgJune个元第￥"), max_size=24))
def test_english_has_no_blanks_at_marks_that_were_not_there(text: str) -> None:
    spoken = spoken_text(text)
    assert spoken == spoken.strip()
    for mark in ".,:;?!":
        assert f" {mark}" in text or f" {mark}" not in spoken
