"""How words are judged: listeners write numbers and titles in many ways."""

from __future__ import annotations

import pytest

from training.word_errors import plain, word_error_rate, word_errors


@pytest.mark.parametrize(
    ("said", "heard", "errors", "words"),
    [
        ("It's two o'clock.", "its 2 o'clock", 1, 3),
        ("a b c", "", 3, 3),
        ("in nineteen oh six", "in 1906", 0, 4),
        ("It is one six eight, eight one.", "It is 168-81.", 0, 7),
        (
            "It costs ninety-two euros and eighty-four cents, on April twenty-seventh.",
            "It costs 92 euros and 84 cents on April 27th",
            0,
            13,
        ),
        ("Dr. Hall, at 11:05 p.m.", "Doctor Hall at eleven oh five PM", 0, 7),
        ("It opens at 8:30 a.m.", "It opens at 8.30am", 0, 6),
        ("Mrs. Hall, at 4 a.m.", "Missus Hall, at 4 AM.", 0, 5),
        ("write to me@home", "Write to me at home.", 0, 5),
    ],
)
def test_edits_and_words(said: str, heard: str, errors: int, words: int) -> None:
    assert word_errors([said], heard) == (errors, words)


def test_the_nearest_spelling_counts() -> None:
    spellings = ("It costs $3.50.", "It costs three point five dollars.")
    for heard in ("It costs $3.50", "it costs 3.5 dollars", "It costs $3.5."):
        assert word_errors(spellings, heard)[0] == 0
    assert word_errors(spellings, "it costs four dollars")[0] == 3


def test_a_listener_that_runs_away_heard_nothing() -> None:
    assert word_error_rate([(["a b c"], "a b c"), (["d"], "1, 1, 1, 1, 1")]) == 0.25


def test_numbers_are_compared_as_words() -> None:
    assert plain("5,182,766") == plain(
        "five million one hundred and eighty-two thousand seven hundred and sixty-six"
    )
    assert plain("2.93 kg, $12.50") == [
        *("two", "point", "nine", "three", "kg"),
        *("twelve", "dollars", "and", "fifty", "cents"),
    ]
