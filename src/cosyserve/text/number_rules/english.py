"""English expressions of numbers: integers, prices, percentages, dates, times, phone numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from cosyserve.text.number_rules.numerals import in_words

Match = re.Match[str]

# fmt: off
_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
]
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}
_CURRENCIES = {
    "$": ("dollar", "dollars"), "£": ("pound", "pounds"), "€": ("euro", "euros"),
    "¥": ("yen", "yen"),
}
_UNITS = {
    "%": ("percent", "percent"), "°": ("degree", "degrees"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "km": ("kilometer", "kilometers"), "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"), "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"), "lb": ("pound", "pounds"), "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"), "ft": ("foot", "feet"), "mph": ("mile per hour", "miles per hour"),
    "min": ("minute", "minutes"), "ms": ("millisecond", "milliseconds"),
    "GHz": ("gigahertz", "gigahertz"), "MHz": ("megahertz", "megahertz"),
    "KB": ("kilobyte", "kilobytes"), "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"), "TB": ("terabyte", "terabytes"),
    "PB": ("petabyte", "petabytes"), "Hz": ("hertz", "hertz"), "ns": ("nanosecond", "nanoseconds"),
    "m²": ("square meter", "square meters"), "m³": ("cubic meter", "cubic meters"),
    "km²": ("square kilometer", "square kilometers"),
    "cm²": ("square centimeter", "square centimeters"), "ha": ("hectare", "hectares"),
    "yd": ("yard", "yards"), "mi": ("mile", "miles"), "ml": ("milliliter", "milliliters"),
    "hp": ("horsepower", "horsepower"), "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"), "GW": ("gigawatt", "gigawatts"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
}
# fmt: on
INTEGER = r"(?:[1-9]\d{0,2}(?:,\d{3}){1,4}|[1-9]\d{0,14}|0)"
_SUFFIX = r"([AaPp])\.?[Mm]\.?"


def read_english(written: str) -> str | None:
    """The words of an expression; None for the grammar to read it."""
    for pattern, words in _RULES:
        if match := pattern.fullmatch(written):
            return words(match)
    return None


def _plain(number: int) -> str:
    """1999 -> one thousand nine hundred ninety nine"""
    return in_words(str(number)).translate(_NO_MARKS).replace(" and ", " ")


_NO_MARKS = str.maketrans({",": None, "-": " "})


def cardinal(digits: str) -> str:
    """1,999 -> one thousand nine hundred and ninety nine"""
    number = int(digits.replace(",", ""))
    tail = number % 100
    head = number - tail
    if tail and head % 1_000_000:
        return f"{_plain(head)} and {_plain(tail)}"
    return _plain(number)


def _digits(digits: str, zero: str = "oh") -> str:
    return " ".join(zero if digit == "0" else _plain(int(digit)) for digit in digits)


def digit_by_digit(digits: str) -> str:
    """94110 -> nine four one one zero"""
    return _digits(digits, "zero")


def ordinal(number: int) -> str:
    """21 -> twenty first"""
    head, _, last = _plain(number).rpartition(" ")
    name = _ORDINALS.get(last) or f"{last.removesuffix('y')}{'ie' * last.endswith('y')}th"
    return f"{head} {name}".lstrip()


def year_in_words(digits: str) -> str:
    """1905 -> nineteen oh five"""
    century, rest = divmod(int(digits), 100)
    if century % 10 == 0 and rest < 10:
        return _plain(int(digits))
    tail = "hundred" if not rest else _plain(rest) if rest > 9 else f"oh {_plain(rest)}"
    return f"{_plain(century)} {tail}"


def _year_of_date(digits: str) -> str:
    """As above, but 1905 -> nineteen zero five"""
    century, rest = digits[:2], int(digits[2:])
    if 0 < rest < 10 and century != "20":
        return f"{_plain(int(century))} zero {_plain(rest)}"
    return year_in_words(digits)


def _whole(digits: str) -> str:
    if digits[0] == "0" and digits != "0":
        zeros = len(digits) - len(digits.lstrip("0") or "0")
        return "oh " * zeros + cardinal(digits)
    return year_in_words(digits) if len(digits) == 4 and digits < "3000" else cardinal(digits)


def _decimal(integer: str, fraction: str | None) -> str:
    words = cardinal(integer)
    return f"{words} point {_digits(fraction)}" if fraction else words


def _positive(integer: str, fraction: str | None) -> str:
    """As above, but 0.05 -> oh point oh five"""
    if fraction and integer == "0" and "0" in fraction:
        return f"oh point {_digits(fraction)}"
    return _decimal(integer, fraction)


def _signed(match: Match) -> str:
    sign, integer, fraction = match.groups()
    words = {"": "", "+": "plus ", "-": "minus " if fraction else "negative "}[sign]
    if not fraction:
        return words + (cardinal(integer) if sign == "-" else _whole(integer))
    return words + _positive(integer, fraction)


def _quantity(match: Match) -> str | None:
    sign, integer, fraction, unit = match.groups()
    one, many = _UNITS[unit]
    words = _positive(integer, fraction)
    if sign and integer == "0":
        words = words.replace("oh", "zero")
    negative = "" if not sign else "minus " if fraction else "negative "
    return f"{negative}{words} {one if words == 'one' else many}"


def _large(match: Match) -> str:
    integer, fraction, quantity = match.groups()
    words = _positive(integer, fraction) if fraction else _plain(int(integer))
    return f"{words} {quantity}"


def _price(match: Match) -> str:
    currency, integer, fraction = match.groups()
    one, many = _CURRENCIES[currency]
    words = _decimal(integer, (fraction or "").rstrip("0"))
    return f"{words} {one if words == 'one' else many}"


def _large_price(match: Match) -> str:
    currency, integer, fraction, quantity = match.groups()
    words = _decimal(integer, fraction) if fraction else _plain(int(integer))
    return f"{words} {quantity} {_CURRENCIES[currency][1]}"


def _ordinal_or_none(match: Match) -> str | None:
    number, suffix = int(match[1].replace(",", "")), match[2].lower()
    ends = {1: "st", 2: "nd", 3: "rd"}
    right = "th" if number // 10 % 10 == 1 else ends.get(number % 10, "th")
    return ordinal(number) if suffix == right else None


def _time(match: Match) -> str | None:
    hour, minute, half = match.groups()
    if int(hour) > 23:
        return None
    words = _plain(int(hour))
    if minute and minute != "00":
        words += f" {'o ' * (minute < '10')}{_plain(int(minute))}"
    elif not half:
        words += " o'clock"
    return f"{words} {half.upper()}M" if half else words


def _length(match: Match) -> str | None:
    """1:05:09 -> one hour five minutes and nine seconds"""
    hours, minutes, seconds = map(int, match.groups())
    if hours > 23:
        return None
    parts = ((hours, "hour"), (minutes, "minute"), (seconds, "second"))
    hour, minute, second = (f"{_plain(n)} {name}{_plural(n)}" for n, name in parts)
    return f"{hour} {minute} and {second}"


def _plural(count: int) -> str:
    """The grammar looks at the last word: 'twenty one minute'."""
    return "" if _plain(count).split()[-1] == "one" else "s"


def _phone(match: Match) -> str:
    area, *rest = filter(None, match.groups())
    parts = ["eight hundred" if area == "800" else digit_by_digit(area)]
    return ", ".join(parts + [digit_by_digit(digits) for digits in rest])


def _range(match: Match) -> str:
    return f"{cardinal(match[1])} to {cardinal(match[2])}"


def _fraction(match: Match) -> str | None:
    whole, over, under = match.groups()
    parts = int(under)
    if parts < 2:
        return None
    name = {2: "half", 4: "quarter"}.get(parts) or ordinal(parts)
    if over != "1":
        name = "halves" if parts == 2 else f"{name}s"
    if not whole:
        return f"{_plain(int(over))} {name}"
    count = "a" if (over, parts) == ("1", 2) else _plain(int(over))
    return f"{_plain(int(whole))} and {count} {name}"


def _day(day: str, month: int, year: str | None, mark: str = "") -> str | None:
    if not (1 <= int(day) <= 31 and 1 <= month <= 12):
        return None
    if year and not "1000" < year < "3000":
        return None
    words = f"the {ordinal(int(day))} of {_MONTHS[month - 1]}{mark}"
    return f"{words} {_year_of_date(year)}" if year else words


def _slashed_date(match: Match) -> str | None:
    month, day, year = match.groups()
    words = _day(day, int(month), None)
    return f"{words} {year_in_words(year)}" if words and "1010" <= year < "3000" else None


def _month(name: str) -> int:
    names = [month[:3] for month in _MONTHS]
    return names.index(name[:3].lower()) + 1


def _month_first(match: Match) -> str | None:
    name, day, mark, year = match.groups()
    return _day(day, _month(name), year, mark or "")


def _month_alone(match: Match) -> str | None:
    name, year = match.groups()
    known = "1000" < year < "3000"
    return f"{_MONTHS[_month(name) - 1]} {_year_of_date(year)}" if known else None


_NUMBER = rf"({INTEGER})(?:\.(\d+))?"
# The grammar reads 1250 million as "one, two hundred fifty million", and 1250.5 million well.
_COUNT = rf"([1-9]\d{{0,2}}|{INTEGER}(?=\.))(?:\.(\d+))?"
_LARGE = r"((?:[mb]|tr)illion)"
_NAME = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_NTH = r"([1-9]\d?)(?:st|nd|rd|th)?"
_SMALL = r"([1-9]\d{0,2})"
_LETTERS = r"(?![A-Z]*(?:NO|DH|TV|ES|VTE|ZIP)\d)([A-Z]{1,4})"  # these are words to the grammar
# 1300-42 is "thirteen hundred to forty two" to the grammar, but not always: such ends are its own.
_END = r"((?![1-9][1-9]00\b)(?:[1-9]\d{0,2}(?:,\d{3}){1,4}|[1-9]\d{0,5}|0))"
_RULES: list[tuple[re.Pattern[str], Callable[[Match], str | None]]] = [
    (re.compile(rf"0\d{{1,8}}|{INTEGER}"), lambda m: _whole(m[0])),
    (re.compile(r"[1-9]\d{15,}"), lambda m: _digits(m[0])),
    (re.compile(rf"([+-]?){_NUMBER}"), _signed),
    (re.compile(rf"(-?){_NUMBER} ?({'|'.join(_UNITS)})"), _quantity),
    (re.compile(rf"{_COUNT} {_LARGE}"), _large),
    (re.compile(rf"([$£€¥]){_NUMBER}"), _price),
    (re.compile(rf"([$£€¥]){_COUNT} {_LARGE}"), _large_price),
    (re.compile(rf"({INTEGER})(st|nd|rd|th)"), _ordinal_or_none),
    (re.compile(rf"(\d\d?):([0-5]\d)(?: ?{_SUFFIX})?"), _time),
    (re.compile(rf"(\d\d?)() ?{_SUFFIX}"), _time),
    (re.compile(r"(\d\d?):([0-5]\d):([0-5]\d)"), _length),
    (re.compile(r"(?:\((\d{3})\) ?|(\d{3})-)(\d{3})-(\d{4})"), _phone),
    (re.compile(rf"{_END}-{_END}"), _range),
    (re.compile(r"(?:([1-9]\d{0,3}) )?([1-9]\d{0,3})/([1-9]\d{0,3})"), _fraction),
    (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), lambda m: _day(m[3], int(m[2]), m[1])),
    (re.compile(r"(\d\d?)/(\d\d?)/(\d{4})"), _slashed_date),
    (re.compile(rf"{_NAME}\.? {_NTH}(?:(,?) (\d{{4}}))?"), _month_first),
    (re.compile(rf"{_NAME}\.? (\d{{4}})"), _month_alone),
    (re.compile(r"May ([12]\d{3})"), lambda m: f"May {year_in_words(m[1])}"),
    (re.compile(rf"{_NTH} {_NAME}(?:,? (\d{{4}}))?"), lambda m: _day(m[1], _month(m[2]), m[3])),
    (re.compile(r"'?([2-9]0)s"), lambda m: f"{_plain(int(m[1])).removesuffix('y')}ies"),
    (re.compile(rf"#(){_NUMBER}"), lambda m: f"number {_signed(m)}"),
    (re.compile(rf"({INTEGER})x"), lambda m: f"{cardinal(m[1])} times"),
    (re.compile(rf"{_SMALL}([A-Z])"), lambda m: f"{cardinal(m[1])} {m[2]}"),
    (re.compile(rf"{_LETTERS}{_SMALL}([A-Z])"), lambda m: f"{m[1]} {cardinal(m[2])} {m[3]}"),
    (re.compile(rf"{_LETTERS}{_SMALL}"), lambda m: f"{m[1]} {cardinal(m[2])}"),
]
