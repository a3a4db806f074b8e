"""Where an English text that still arrives can be cut, so that each side is read for itself.

Numbers reach over blanks to units, months, years and fractions: such borders stay closed. One is
decided as soon as the next word can no longer become one of these.
"""

from __future__ import annotations

import re

from cosyserve.text.number_rules.as_said import MONTH
from cosyserve.text.numbers import UNIT
from cosyserve.text.rewrites.numbers import CODE, NUMBER, SHORT_UNITS
from cosyserve.text.rewrites.symbols import FRACTIONS, LEADING_EMOJI

# fmt: off
UNITS = (
    "million", "billion", "trillion", "m²", "m³", "km²", "km³", "cm²", "cm³", "mm²", "mm³", "nm²",
    "nm³", "km", "cm", "mm", "nm", "kg", "mg", "lb", "lbs", "oz", "ft", "yd", "mi", "ml", "min",
    "ms", "ns", "mph", "rpm", "hp", "ha", "kW", "MW", "GW", "Hz", "kHz", "MHz", "GHz", "KB", "MB",
    "GB", "TB", "PB", "kbps", "Mbps", "Gbps", "%", "°", "°C", "°F", "AM", "Am", "aM", "am", "PM",
    "Pm", "pM", "pm", "a.m.", "p.m.",
)
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)
# fmt: on

NEAR = 200  # characters in which two words end

_WORD = re.compile(r"\S+")
_UNIT = re.compile(UNIT)
# These also follow "5," and "5."
_SHORT_UNIT = re.compile(rf"(?:{'|'.join(SHORT_UNITS)})(?![\w/'’])")
_DIGIT = re.compile(r"\d")
_LEAD = re.compile(r"(?:\bNo\.|[￥)])$")  # a number may follow
_MONTH_END = re.compile(rf"\b{MONTH}[.,]?$")
_MONTH_START = re.compile(rf"{MONTH}\b")
_DAY = re.compile(r"(?:(?<!\d)\d{1,2}(?:st|nd|rd|th)?)(,?)$")
_STREET = re.compile(r"\bSt\b\.?$")  # it is a saint before some words
_CODE = re.compile(rf"\b(?:{CODE}|{NUMBER}):?$")
_CODE_IS = re.compile(r"is|was")
_LEADING_EMOJI = re.compile(LEADING_EMOJI)
_PHONE_PART = re.compile(r"\+\d{1,3}|1|[+(]?\d[\d().–-]*[\d)]")
_AS_DIGITS = str.maketrans(FRACTIONS)
_HOURS = re.compile(r"(?<!\d)\d{1,2}h$")
_NUMBER_END = re.compile(r"[A-Za-z0-9%°²³]$")
_COUNT_END = re.compile(r"\d[.,]*$")
_FRACTION = re.compile(r"\d+/\d+")
_FRACTION_START = re.compile(r"\d+(?:/\d*)?")


def last_border(text: str, limit: int) -> int:
    """The last index of a blank, up to `limit`, where the text can be cut, whatever follows; 0:
    nowhere yet."""
    words = list(_WORD.finditer(text))
    whole = not words or words[-1].end() < len(text)  # whether the last word has ended
    emoji = _LEADING_EMOJI.match(text)  # at the start of the whole text: then blanks go with them
    first = emoji.end() if emoji else 0
    following, ended = "", False
    for number in range(len(words) - 1, -1, -1):
        word = words[number]
        if first <= word.end() <= limit and word.end() < len(text):
            before = words[number - 1][0] if number else ""
            if not _may_join(before, word[0], following, ended):
                return word.end()
        following, ended = word[0], number < len(words) - 1 or whole
    return 0


def in_number(text: str, at: int) -> bool:
    """Whether the blank at this index may stand inside a number."""
    words = text[max(0, at - NEAR) : at].split()[-2:]
    following = text[at : at + NEAR].split(maxsplit=1)
    if not words:
        return False
    before = words[0] if len(words) > 1 else ""
    ended = len(following) > 1 or len(text) > at + NEAR or text[-1].isspace()
    return _may_join(before, words[-1], following[0] if following else "", ended)


def _may_join(before: str, word: str, following: str, ended: bool) -> bool:
    """Whether a word and the `following` one may be one number. That one may still grow unless it
    has `ended`."""
    word, following = word.translate(_AS_DIGITS), following.translate(_AS_DIGITS)
    if _STREET.search(word):
        return True
    if not _DIGIT.search(word):
        code = _CODE.search(word)
        if code and following and _begins(following, ended, _CODE_IS, ("is", "was")):
            return True
        named = code or (_CODE_IS.fullmatch(word) and _CODE.search(before))
        leads = named or _LEAD.search(word) or _MONTH_END.search(word)
        return bool(leads) and (not following or following[0] == "￥" or following[0].isdecimal())
    if not following:
        return True
    if following[0] in "(￥":
        return _PHONE_PART.fullmatch(word) is not None
    if following[0].isdecimal():
        day_of_month = _DAY.search(word) and _MONTH_END.search(before)
        leads = day_of_month or _LEAD.search(word) or _HOURS.search(word)
        phone = _PHONE_PART.fullmatch(word)
        return bool(leads or phone) or _is_fraction(word, following, ended)
    if _COUNT_END.search(word) and _begins(following, ended, _SHORT_UNIT, SHORT_UNITS):
        return True
    if not _NUMBER_END.search(word):
        return False
    day = _DAY.search(word)
    if day and not day[1] and _begins(following, ended, _MONTH_START, MONTHS):
        return True
    return _begins(following, ended, _UNIT, UNITS)


def _is_fraction(word: str, following: str, ended: bool) -> bool:
    if not _NUMBER_END.search(word):
        return False
    pattern = _FRACTION.match if ended else _FRACTION_START.fullmatch
    return bool(pattern(following) or _FRACTION.match(following))


def _begins(word: str, ended: bool, pattern: re.Pattern[str], names: tuple[str, ...]) -> bool:
    """Whether the word begins with one of the names, or may when it has grown."""
    return bool(pattern.match(word)) or (not ended and any(n.startswith(word) for n in names))
