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
        ("Do you see?", "'Do you ' see?'", 0, 3),
        ("the thirtieth of June", "the 30th of June", 0, 4),
        ("the thirtieth of June", "30 June", 0, 4),
        ("June thirtieth", "June 30", 0, 2),
        ("It starts at nine twenty.", "It starts at 9.20.", 0, 5),
        ("It opens at six forty five.", "It opens at 645.", 0, 6),
        ("at eight o'clock", "at 8:00", 0, 3),
        ("at twelve oh eight Maple Court", "at 12-08 Maple Court", 0, 6),
        ("thirty five miles per hour", "35 mph", 0, 5),
        ("five kilograms", "5kg", 0, 2),
        ("ten to twelve people", "10-12 people", 0, 4),
        ("two thirds of the sixties", "2/3 of the 60s", 0, 5),
        ("six tenths", "6 10ths", 0, 2),
        ("five five five, zero one four two", "555-0142", 0, 7),
        ("sixty pounds", "£60", 0, 2),
        ("forty eight dollars and sixty cents", "$48.60", 0, 6),
        ("minus four degrees", "-4°", 0, 3),
        ("thirty by twenty", "30x20", 0, 3),
        ("nineteen oh six and one thousand and ninety", "1906 and 1,090", 0, 8),
        ("five thousand meters of gray fiber", "5,000 metres of grey fibre", 0, 6),
        (
            "My favorite neighbor organized and canceled it.",
            "My favourite neighbour organised and cancelled it",
            0,
            7,
        ),
        ("Fasten your seat belts to night.", "Fasten your seatbelts tonight.", 0, 6),
        ("a secondhand bicycle anytime", "a second-hand bicycle any time", 0, 4),
        ("at example dot com", "at example.com", 0, 4),
        ("on Hawthorne Street", "on Hawthorne St.", 0, 3),
        ("a café", "a cafe", 0, 2),
    ],
)
def test_edits_and_words(said: str, heard: str, errors: int, words: int) -> None:
    assert word_errors([said], heard) == (errors, words)


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("at nine twenty", "at 9.30", 1),
        ("at six forty five", "at 654", 2),
        ("twelve oh eight", "12-09", 1),
        ("the thirtieth of June", "the 13th of June", 1),
        ("June thirtieth", "June 13", 1),
        ("nine thirteen", "930", 1),
        ("thirty five miles per hour", "35 mpg", 3),
        ("five kilograms", "5 km", 1),
        ("four hours", "for ours", 2),
        ("a story in Omaha", "a store in Omaha", 1),
        ("a prize", "a price", 1),
        ("their tour", "their tor", 1),
        ("seat belts", "seatbelt", 2),
        ("a part of it", "apart from it", 1),
        ("to night", "tonight tonight", 1),
        ("fifty dollars", "50 cents", 1),
        ("Simone", "Simon", 1),
        ("its two", "it's 2", 1),
        ("one two three", "1, 2, 2", 1),
        ("ten to twelve", "10 or 12", 1),
        ("sixty percent", "16%", 1),
    ],
)
def test_another_word_is_never_forgiven(said: str, heard: str, errors: int) -> None:
    assert word_errors([said], heard)[0] == errors


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
