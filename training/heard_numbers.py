"""How a number that a listener wrote in digits may have been said."""

from __future__ import annotations

import re
from itertools import product

Words = list[str]

MONTHS = {
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept",
    "sep", "oct", "nov", "dec",
}  # fmt: skip
UNITS = {
    "mph": ("miles per hour", "mile per hour"), "kph": ("kilometers per hour",),
    "km": ("kilometers", "kilometer"), "cm": ("centimeters", "centimeter"),
    "mm": ("millimeters", "millimeter"), "m": ("meters", "meter"), "kg": ("kilograms", "kilogram"),
    "g": ("grams", "gram"), "mg": ("milligrams", "milligram"), "lb": ("pounds", "pound"),
    "lbs": ("pounds",), "oz": ("ounces", "ounce"), "ft": ("feet", "foot"),
    "hr": ("hour", "hours"), "hrs": ("hours",), "min": ("minutes", "minute"),
    "mins": ("minutes",), "sec": ("seconds", "second"), "secs": ("seconds",),
    "gb": ("gigabytes",), "mb": ("megabytes",), "k": ("thousand",),
}  # fmt: skip
_MARKS = {"%": "percent", "°": "degrees", "°c": "degrees celsius", "°f": "degrees fahrenheit"}
_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
ONES += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"]
ONES += ["nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}
_MOST_GROUPS = 6  # of digits between marks; what has more is read digit by digit


def readings(sign: str, number: str, suffix: str, *, day: bool = False) -> list[Words]:
    """The likeliest first. `sign` stands before the digits, `suffix` behind; `day`: of a month."""
    number = number.replace(",", "")
    said = _readings(number)
    if suffix in ("st", "nd", "rd", "th", "ths", "rds"):
        return [_ordinal(words, plural=suffix.endswith("s")) for words in said]
    if suffix in ("s", "'s"):
        return [[*words[:-1], _plural(words[-1])] for words in said]
    if sign in _CURRENCIES:
        said = _amounts(_CURRENCIES[sign], number) + said
    elif sign == "#":
        said = [["number", *words] for words in said]
    if day:
        said += [_ordinal(words) for words in said]
    if not suffix:
        return said
    units = [_MARKS[suffix]] if suffix in _MARKS else [suffix, *UNITS.get(suffix, ())]
    return [[*words, *unit.split()] for words, unit in product(said, units)]


def _readings(number: str) -> list[Words]:
    """Of digits with marks between them."""
    groups = re.split(r"[.:/x-]", number)
    marks = re.findall(r"[.:/x-]", number)
    if not marks:
        return _integer(number)
    if len(groups) > _MOST_GROUPS:
        return _by_digit("".join(groups))
    found: list[Words] = []
    if marks == ["."]:
        found += [[*whole, "point", *part] for whole in _integer(groups[0])[:1]
                  for part in _by_digit(groups[1])]  # fmt: skip
    if marks in ([":"], ["."]) and len(groups[1]) == 2:
        found += _time(*groups)
    if marks == ["/"]:
        found += _fraction(*groups)
    if set(marks) == {"-"}:
        found += _integer("".join(groups))
    between = {".": ("point", "dot", ""), ":": ("",), "/": ("", "slash"), "x": ("by", "times")}
    between["-"] = ("", "to")
    for word in between[marks[0]]:
        parts = product(*([*_integer(group)[:1], *_by_digit(group)] for group in groups))
        found += [_between(part, word) for part in parts]
    return found


def _between(parts: tuple[Words, ...], word: str) -> Words:
    words = list(parts[0])
    for part in parts[1:]:
        words += [word, *part] if word else part
    return words


def _integer(digits: str) -> list[Words]:
    """As a count, a year, a time without its mark, digit by digit."""
    if digits[0] == "0" and len(digits) > 1:
        return _by_digit(digits)
    count = cardinal(int(digits))
    found = [count, [word for word in count if word != "and"], _in_pairs(int(digits))]
    if len(digits) in (3, 4):
        found += _time(digits[:-2], digits[-2:])
    return found + _by_digit(digits)


def _time(hour: str, minute: str) -> list[Words]:
    hours = cardinal(int(hour))
    if minute == "00":
        return [[*hours, "o'clock"], [*hours, "hundred"], hours]
    minutes = cardinal(int(minute))
    if minute < "10":
        return [[*hours, oh, *minutes] for oh in ("oh", "o", "zero")]
    return [[*hours, *minutes]]


def _amounts(currency: tuple[str, str], number: str) -> list[Words]:
    """three dollars and fifty cents; three point five dollars"""
    unit, part = currency
    whole, dot, cents = number.partition(".")
    amounts = [[*words, name] for words in _readings(number) for name in (unit + "s", unit)]
    if dot and cents.isdigit() and len(cents) == 2:
        counted = [*cardinal(int(whole)), unit if whole == "1" else unit + "s"]
        change = cardinal(int(cents))
        names = {part, part + "s"} if part == "cent" else {part}
        with_cents = [[*counted, "and", *change, name] for name in sorted(names, reverse=True)]
        amounts = with_cents + [[*change, name] for name in names if whole == "0"] + amounts
        amounts += [[*words, unit + "s"] for words in _readings(number.rstrip("0"))]
    return amounts


def _fraction(over: str, under: str) -> list[Words]:
    count, parts = cardinal(int(over)), int(under)
    if parts == 2:
        return [[*count, "half"], [*count, "halves"], ["half"], ["a", "half"]]
    names = [_ordinal(cardinal(parts))] + ([["quarter"]] if parts == 4 else [])
    return [[*count, *name[:-1], name[-1] + "s" * (over != "1")] for name in names]


def _ordinal(words: Words, *, plural: bool = False) -> Words:
    last = words[-1]
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return [*words[:-1], ORDINALS.get(last, regular) + "s" * plural]


def _plural(word: str) -> str:
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def cardinal(number: int) -> Words:
    """As the sentences of the corpus say it: with `and` before the tens."""
    if number < 20:
        return [ONES[number]]
    if number < 100:
        return [TENS[number // 10], *(cardinal(number % 10) if number % 10 else [])]
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if number >= size:
            rest = number % size
            joined = ["and"] * (size == 1000 and 0 < rest < 100)
            return [*cardinal(number // size), name, *joined, *(cardinal(rest) if rest else [])]
    rest = number % 100
    return [ONES[number // 100], "hundred", *(["and", *cardinal(rest)] if rest else [])]


def _in_pairs(number: int) -> Words:
    """As years are said: nineteen oh six, eighteen hundred."""
    century, rest = divmod(number, 100)
    if not 10 <= century < 100 or (century % 10 == 0 and rest < 10):
        return cardinal(number)
    if rest == 0:
        return [*cardinal(century), "hundred"]
    return [*cardinal(century), *(["oh"] if rest < 10 else []), *cardinal(rest)]


def _by_digit(digits: str) -> list[Words]:
    said = [ONES[int(digit)] for digit in digits]
    return [said, ["oh" if word == "zero" else word for word in said]]
