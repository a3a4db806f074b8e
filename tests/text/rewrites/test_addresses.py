import pytest

from cosyserve.text.rewrites.addresses import say_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to help@example.com.", "Write to help at example dot com."),
        ("(a.b+c@mail.x-y.org)", "(A dot B plus C at mail dot X dash Y dot org)"),
        ("jo_99@example.co.uk!", "jo underscore ninety nine at example dot co dot U.K!"),
        ("see https://example.com/a-b/?q=3#top,", "see example dot com slash A dash B slash "
         "question mark Q equals three hash top,"),
        ("www.bbc.com/", "WWW dot BBC dot com"),
        ("[the page](https://example.com/docs).", "[the page](example dot com slash docs)."),
        ("example.com:8080/v1 or localhost:8000", "example dot com colon eight thousand and eighty "
         "slash V one or localhost colon eight thousand"),
        ("main.py, a.json and notes.txt", "main dot py, A dot json and notes dot TXT"),
    ],
)  # fmt: skip
def test_addresses_are_said(text: str, expected: str) -> None:
    assert say_addresses(text) == expected


@pytest.mark.parametrize(
    "text",
    ["We stop here.So do they.", "It ended.in the end", "3.14 and 1.5.2", "e.g. this, i.e. that",
     "U.S.A. etc.", "a.m. or p.m.", "me @ home", "x@y", "...com", "a:b", "Dr. Who"],
)  # fmt: skip
def test_what_is_no_address_stays(text: str) -> None:
    assert say_addresses(text) == text


@pytest.mark.parametrize("unit", ["a.", "a@", "a@a.", "a-.", "www.", "http://", "a.com", "/", "é."])
def test_a_long_text_takes_no_longer_by_the_character(unit: str) -> None:
    """Twenty thousand characters would take minutes if it were their square."""
    assert say_addresses(unit * 20_000)
