"""English words for whole numbers. Currencies, dates and units are the number grammar's."""

from __future__ import annotations

from itertools import groupby

from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_POWERS = [
    "", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion", "sextillion",
    "septillion", "octillion", "nonillion", "decillion",
]
# fmt: on


def _below_hundred(number: int) -> str:
    if number < len(_UNITS):
        return _UNITS[number]
    tens, units = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[units]}" if units else "")


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _below_hundred(rest)
    return f"{_UNITS[hundreds]} hundred" + (f" and {_below_hundred(rest)}" if rest else "")


class NumOutOfRangeError(ValueError):
    """A number of this size has no name."""


def in_words(digits: str, fixes: Fixes = ALL_FIXES) -> str:
    """1999 -> one thousand, nine hundred and ninety-nine."""
    if len(digits.lstrip("0")) > 3 * len(_POWERS):
        if Fix.NAMELESS_NUMBERS not in fixes:
            raise NumOutOfRangeError(digits)
        return " ".join(_UNITS[int(digit)] for digit in digits)
    number = int(digits)
    if not number:
        return _UNITS[0]
    groups: list[str] = []
    rest = number
    for power in _POWERS:
        rest, group = divmod(rest, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {power}".rstrip())
    last = " and " if 0 < number % 1000 < 100 else ", "
    head = ", ".join(reversed(groups[1:]))
    return f"{head}{last}{groups[0]}" if head else groups[0]


def spell_digits(text: str, fixes: Fixes = ALL_FIXES) -> str:
    """The text with every run of digits in words."""
    is_digit = str.isdecimal if Fix.ODD_DIGITS in fixes else str.isdigit
    words = []
    for digits, run in groupby(text, is_digit):
        piece = "".join(run)
        if digits:
            piece = in_words("".join(filter(str.isdecimal, piece)) or "0", fixes)
        words.append(piece)
    return "".join(words)
