"""Where numbers are read in other words than the grammars have for them."""

import pytest

from cosyserve.text import spoken_text
from cosyserve.text.number_rules.as_said import read_as_said


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("June 30th, 2027", "June thirtieth twenty twenty seven"),
        ("February 11, 1987", "February eleventh nineteen eighty seven"),
        ("Sept. 1", "September first"),
        ("May 5 1905", "May fifth nineteen oh five"),
        ("July 3-5", "July third to fifth"),
        ("12 May 2024", "the twelfth of May twenty twenty four"),
        ("12/25/2024", "December twenty fifth twenty twenty four"),
        ("25/12/99", "December twenty fifth nineteen ninety nine"),
        ("$48.60", "forty eight dollars and sixty cents"),
        ("$0.01", "one cent"),
        ("$1,000.00", "one thousand dollars"),
        ("£1.01", "one pound and one penny"),
        ("€5-10", "five to ten euros"),
        ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
        ("(415) 555-0142", "four one five, five five five, zero one four two"),
        ("1-800-555-0142", "one, eight hundred, five five five, zero one four two"),
        ("+442079460958", "plus four four two, zero seven nine, four six zero, nine five eight"),
        ("1914-1918", "nineteen fourteen to nineteen eighteen"),
        ("1990-91", "nineteen ninety to ninety one"),
        ("5-6:30pm", "five to six thirty PM"),
        ("#12345", "number one two three four five"),
        ("v2.13.0", "v two point thirteen point oh"),
    ],
)
def test_it_is_read_as_people_say_it(written: str, words: str) -> None:
    assert read_as_said(written) == words


@pytest.mark.parametrize(
    "written",
    ["June 32", "June 5, 3050", "13/13/2024", "5 March", "$5", "$5.5", "$5.50 million", "+44",
     "+10 20", "1918-1914", "1990-90", "#1234", "5-6", "2.13", "192.168.0.1", "12 345",
     "100 200 300", "35 May"],
)  # fmt: skip
def test_other_expressions_are_left_to_rules_and_grammar(written: str) -> None:
    assert read_as_said(written) is None


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("My zip code is 94110.", "My zip code is nine four one one zero."),
        ("Order number: 60417", "Order number: six zero four one seven"),
        ("A number 12 bus, code 12", "A number twelve bus, code twelve"),
        ("the code 94110.5", "the code ninety four thousand one hundred and ten point five"),
        ("It took 1h 30m, then 2 hrs.", "It took one hour thirty minutes, then two hours."),
    ],
)
def test_codes_and_hours(text: str, spoken: str) -> None:
    assert spoken_text(text) == spoken


@pytest.mark.parametrize("unit", ["+1 ", "0", "01 ", "1-", "(0)", "+1(", "12 ", "123 ", "1."])
def test_a_long_text_takes_no_longer_by_the_character(unit: str) -> None:
    assert "1" not in spoken_text(unit * 3000)
