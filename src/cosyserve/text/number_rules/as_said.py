"""English expressions of numbers as people say them, where the grammars of wetext say it otherwise:
all that is read in other words on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable

from cosyserve.text.number_rules.english import (
    INTEGER,
    cardinal,
    digit_by_digit,
    ordinal,
    read_english,
    year_in_words,
)

Match = re.Match[str]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
# Behind + of a country or 0 of a place, or as in North America; 7 digits or more.
PHONE = (
    r"(?<![\w.,+-])(?:\+(?=(?:\d[ .()-]{0,2}){7,15}(?!\d))\d{1,3}(?:[ .-]?\(\d{1,4}\))?"
    r"(?:[ .-]?\d{2,6})+"
    r"|(?:1[ .-])?(?:\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}(?P<gap>[ .-])\d{3}(?P=gap)\d{4})"
    r"|\d{3}-\d{4}"
    r"|\(?0\d{1,4}\)?(?:(?: \d{3,4}){2}| \d{6}|(?: \d\d){4}))(?![\w-]|[.,:/]\d)"
)
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"), "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
}  # fmt: skip
_LONGEST_GROUP = 5  # of digits that are said without a pause


def read_as_said(written: str) -> str | None:
    """The words of an expression; None where the rules and the grammar say what people do."""
    for pattern, words in _RULES:
        if match := pattern.fullmatch(written):
            return words(match)
    return None


def _date(month: int, day: str, last: str | None, year: str | None) -> str | None:
    """June thirtieth twenty twenty seven; of June 3-5, 5 is the last day"""
    days = [int(number) for number in (day, last) if number]
    if not 1 <= month <= 12 or not all(1 <= number <= 31 for number in days):
        return None
    if year and not "1000" < year < "3000":
        return None
    words = f"{MONTHS[month - 1]} {' to '.join(map(ordinal, days))}"
    return f"{words} {year_in_words(year)}" if year else words


def _month_first(match: Match) -> str | None:
    name, day, last, year = match.groups()
    return _date(_month(name), day, last, year)


def _month(name: str) -> int:
    return [month[:3] for month in MONTHS].index(name[:3]) + 1


def _may(match: Match) -> str | None:
    """The grammar knows no month of this name, for it is a verb, too."""
    day, year = match.groups()
    return (
        None
        if not 1 <= int(day) <= 31
        else f"the {ordinal(int(day))} of May" + (f" {year_in_words(year)}" if year else "")
    )


def _slashed(match: Match) -> str | None:
    """In the order of the month and the day that is possible, as in America where both are."""
    month, day, year = match.groups()
    if int(month) > 12:
        month, day = day, month
    if len(year) == 2:
        year = ("20" if year < "70" else "19") + year
    return _date(int(month), day, None, year)


def _price(match: Match) -> str:
    """three dollars and fifty cents"""
    currency, whole, part = match.groups()
    one, many, one_part, parts = _CURRENCIES[currency]
    words = []
    if whole != "0" or part == "00":
        words.append(f"{cardinal(whole)} {one if whole == '1' else many}")
    if part != "00":
        words.append(f"{cardinal(part)} {one_part if part == '01' else parts}")
    return " and ".join(words)


def _price_range(match: Match) -> str:
    currency, least, most = match.groups()
    return f"{cardinal(least)} to {cardinal(most)} {_CURRENCIES[currency][1]}"


def _phone(match: Match) -> str:
    """A pause after each group."""
    groups = re.findall(r"\d+", match[0])
    said = ["eight hundred" if group == "800" else _group(group) for group in groups]
    return "plus " * match[0].startswith("+") + ", ".join(said)


def _group(digits: str) -> str:
    """Of more than a few digits, three at a time."""
    parts = []
    while len(digits) > _LONGEST_GROUP:
        parts.append(digits[:3])
        digits = digits[3:]
    return ", ".join(map(digit_by_digit, [*parts, digits]))


def _years(match: Match) -> str | None:
    first, last = match.groups()
    if first >= last:
        return None
    return f"{year_in_words(first)} to {year_in_words(last)}"


def _short_years(match: Match) -> str | None:
    """1990-91"""
    first, last = match.groups()
    return f"{year_in_words(first)} to {cardinal(last)}" if first[2:] < last else None


def _times(match: Match) -> str | None:
    """5-6:30 pm"""
    first, last, half = match.groups()
    begin, end = read_english(first), read_english(f"{last} {half}m")
    return f"{begin} to {end}" if begin and end else None


def _version(match: Match) -> str:
    numbers = ("oh" if number == "0" else cardinal(number) for number in match[2].split("."))
    return f"{match[1]} {' point '.join(numbers)}".lstrip()


_CLOCK = r"(?:1?\d|2[0-4])(?::[0-5]\d)?"
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?"
_RULES: list[tuple[re.Pattern[str], Callable[[Match], str | None]]] = [
    (re.compile(rf"({MONTH})\.? {_NTH}(?:-{_NTH})?(?:,? (\d{{4}}))?"), _month_first),
    (re.compile(rf"{_NTH} May(?:,? ([12]\d{{3}}))?"), _may),
    (re.compile(r"(\d\d?)/(\d\d?)/(\d{4}|\d\d)"), _slashed),
    (re.compile(rf"([$£€])({INTEGER})\.(\d\d)"), _price),
    (re.compile(rf"([$£€])({INTEGER})-({INTEGER})"), _price_range),
    (re.compile(PHONE), _phone),
    (re.compile(r"(1[1-9]\d\d|20\d\d)-(1[1-9]\d\d|20\d\d)"), _years),
    (re.compile(r"(1[1-9]\d\d|20\d\d)-([1-9]\d)"), _short_years),
    (re.compile(rf"({_CLOCK})-({_CLOCK}) ?([AaPp])\.?[Mm]\.?"), _times),
    (re.compile(r"#([1-9]\d{4,11})"), lambda m: f"number {digit_by_digit(m[1])}"),
    (re.compile(r"(v?)((?:0|[1-9]\d{0,3})(?:\.(?:0|[1-9]\d{0,3})){2})"), _version),
]
