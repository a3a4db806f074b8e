import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text import spoken_text
from cosyserve.text.rewrites.symbols import _RULES, say_symbols


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("salt & pepper, R&D, Tom &Jerry", "salt and pepper, R and D, Tom and Jerry"),
        ("AT&amp;T w/ R&D", "A.T and T with R and D"),
        ("w/o sugar, w/milk", "without sugar, with milk"),
        ("@jo #fun C++ F# an A+", "at jo hashtag fun C plus plus F sharp an A plus"),
        ("**so** *very* good**", "so very good"),
        ("~5, >5, <$5, >=5, <=5", "about 5, more than 5, less than $5, at least 5, at most 5"),
        ("1½ or ½, 20℃", "1 1/2 or 1/2, 20°C"),
        ("5'10\" and 6’2”", "5 foot 10 and 6 foot 2"),
        ("tonight @ 8 for 20€", "tonight at 8 for 20 euros"),
        ("$10k, £2.5K, $20/hr, €9/night", "$10000, £2500, $20 per hour, €9 per night"),
        ("x² + 10³, 2^8", "x squared + 10 cubed, 2 to the power of 8"),
        ("Mon-Fri, Sat–Sun", "Monday to Friday, Saturday to Sunday"),
        ("Main St. is by Elm St, near St. Ives", "Main Street is by Elm Street, near St. Ives"),
        ("😀 😀 yes", "yes"),
    ],
)
def test_signs_are_said(text: str, expected: str) -> None:
    assert say_symbols(text) == expected


@pytest.mark.parametrize(
    "text",
    ["it's 5*3", "and/or", "a-b – c", "4 m²", "the '90s", "3/4", "Mon ami", "First", "x > y",
     "[laughter] <strong>yes</strong>", "$5", "a*b*c", "it is 5' long"],
)  # fmt: skip
def test_other_signs_stay(text: str) -> None:
    assert say_symbols(text) == text


def test_an_emoji_is_not_heard_and_keeps_numbers_apart() -> None:
    assert spoken_text("Well 🎉 done 👍🏽! 3 🙂 km") == "Well done! three km"


@pytest.mark.parametrize("sign", [*"&½²@#*~<>–^¢'😀", "w/", "$1k", "a&", "St. ", "1^", "Mon-"])
def test_a_long_text_takes_no_longer_by_the_character(sign: str) -> None:
    assert say_symbols(sign * 20_000) is not None


SIGNS = "&amp;|AT&T|±|℃|℉|½|*so*|w/o|w/|w/a|@|#|C++|F#|A+|~5|>=5|<=5|>5|<5|5¢|5€|5'10\"|6’2”|$10k"
MORE_SIGNS = "$20/hr|5th/6|10–12|5-$6|Elm St|St.|Mon-Fri|Sat–Sun|2^8|x²|10³|😀|a|5|km| |,"


@given(st.lists(st.sampled_from(f"{SIGNS}|{MORE_SIGNS}".split("|")), max_size=6).map("".join))
def test_a_rule_finds_nothing_without_its_signs(text: str) -> None:
    for signs, pattern, _ in _RULES:
        if pattern.search(text):
            assert not signs or any(sign in text for sign in signs)
