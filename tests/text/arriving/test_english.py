import re

from cosyserve.text.arriving.english import MONTHS, UNITS, in_number, last_border
from cosyserve.text.number_rules.as_said import MONTH
from cosyserve.text.numbers import UNIT


def border(text: str) -> int:
    return last_border(text, len(text))


def test_units_and_months_are_those_that_numbers_are_read_with() -> None:
    assert all(re.fullmatch(UNIT, unit) for unit in UNITS)
    assert all(re.fullmatch(MONTH, month) for month in MONTHS)
    stems = {unit[:2] for unit in UNITS}
    letters = "kcmngGMKTPblfoyhrWHzBapAPIi%°²³."
    pairs = {a + b for a in letters for b in letters}
    assert {pair for pair in pairs if re.fullmatch(UNIT, pair)} <= stems


def test_a_border_is_where_no_number_can_be() -> None:
    assert border("It costs 5") == len("It costs")
    assert border("It costs 5 d") == len("It costs 5")
    assert border("It costs 5 m") == len("It costs")
    assert border("No. ") == 0


def test_a_dot_inside_a_number_ends_no_sentence() -> None:
    text = "They live at the house No. 5 now."
    assert in_number(text, text.index(" 5"))
    assert not in_number(text, text.index(" now"))
