"""Signs and short forms of English text as words.

But for St. and the amounts that `arriving.english` knows, no rule looks over a blank, so that a
text in pieces is read as a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

# fmt: off
_WORDS = {
    "&": "and", "±": "plus or minus", "≥": "greater than or equal to", "≤": "less than or equal to",
    "≠": "not equal to", "≈": "about", "×": "times", "÷": "divided by", "§": "section",
    "©": "copyright",
}
FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8", "⅜": "3/8",
    "⅝": "5/8", "⅞": "7/8",
}
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}
_PER = {
    "hr": "hour", "h": "hour", "mo": "month", "yr": "year", "wk": "week", "min": "minute",
    "sec": "second", "s": "second", "lb": "pound", "gal": "gallon", "mi": "mile",
}
# fmt: on
EMOJI = (
    "\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d\u20e3\U0001f000-\U0001faff\U000e0020-\U000e007f"
    "\u2122\u00ae"
)
LEADING_EMOJI = rf"^[{EMOJI}][{EMOJI} ]*"
UNREAD = "\u2060"  # has no width, and keeps two numbers apart
_ANY_DAY = "|".join(sorted(_DAYS, key=len, reverse=True))
# What a text must hold one of, or it stays as it is (none: nothing); what is replaced; by what.
_Rule = tuple[Sequence[str], re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _word(sign: re.Match[str]) -> str:
    """With blanks to both sides."""
    text, start, end = sign.string, sign.start(), sign.end()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    return " " * (before > " ") + _WORDS[sign[0]] + " " * (after > " ")


def _letters(name: re.Match[str]) -> str:
    """AT&T -> A.T and T"""
    return f"{'.'.join(name[1])} and {'.'.join(name[2])}"


def _fraction(sign: re.Match[str]) -> str:
    return f"{sign[1]} {FRACTIONS[sign[2]]}" if sign[1] else FRACTIONS[sign[2]]


def _thousands(price: re.Match[str]) -> str:
    amount = Decimal(price[2].replace(",", "")) * 1000
    return f"{price[1]}{amount.normalize():f}"


_RULES: list[_Rule] = [
    ("&", re.compile("&amp;"), "&"),
    ("&", re.compile(r"(?<!\w)([A-Z]{2,3})&([A-Z]{1,3})(?!\w)"), _letters),
    (tuple(_WORDS), re.compile(f"[{''.join(_WORDS)}]"), _word),
    ("℃", re.compile("℃"), "°C"),
    ("℉", re.compile("℉"), "°F"),
    (tuple(FRACTIONS), re.compile(f"(\\d?)([{''.join(FRACTIONS)}])"), _fraction),
    # **bold**, *so*; 5*3 stays
    (
        "*",
        re.compile(r"(?<![\w*])\*{1,3}(?=[A-Za-z\"'“])|(?<=[A-Za-z.,!?:;%\"'”])\*{1,3}(?![\w*])"),
        "",
    ),
    ("/", re.compile(r"(?<![\w/])w/o(?!\w)"), "without"),
    ("/", re.compile(r"(?<![\w/])w/(?!\S)"), "with"),
    ("/", re.compile(r"(?<![\w/])w/(?=[a-z])"), "with "),
    ("@", re.compile(r"(?<!\S)@(?=\w)"), "at "),
    ("@", re.compile(r"(?<!\S)@(?!\S)"), "at"),
    ("#", re.compile(r"(?<![\w&#])#(?=[A-Za-z])"), "hashtag "),
    ("+", re.compile(r"(?<![\w+])([A-Za-z])\+\+(?![\w+])"), r"\1 plus plus"),
    ("#", re.compile(r"(?<!\w)([A-G])#(?!\w)"), r"\1 sharp"),
    ("+", re.compile(r"(?<!\w)([A-F])\+(?![\w+])"), r"\1 plus"),
    ("~", re.compile(r"(?<!\S)~(?=[$£€]?\d)"), "about "),
    (">", re.compile(r"(?<!\S)>=(?=[$£€]?\d)"), "at least "),
    ("<", re.compile(r"(?<!\S)<=(?=[$£€]?\d)"), "at most "),
    (">", re.compile(r"(?<!\S)>(?=[$£€]?\d)"), "more than "),
    ("<", re.compile(r"(?<!\S)<(?=[$£€]?\d)"), "less than "),
    ("¢", re.compile(r"(\d)¢"), r"\1 cents"),
    ("€", re.compile(r"(?<![\w.,$£€])(\d[\d.,]{0,15})€(?!\w)"), r"\1 euros"),
    ("'’′", re.compile(r"(?<![\w.,'’])(\d)['’′](\d\d?)(?:[\"”″]|''|’’)"), r"\1 foot \2"),
    ("$£€", re.compile(r"([$£€])(\d[\d,]{0,6}(?:\.\d)?)[kK](?!\w)"), _thousands),
    (
        "/",
        re.compile(r"((?<!\w)[$£€]\d[\d.,]{0,15})/([A-Za-z]{1,10})(?!\w)"),
        lambda m: f"{m[1]} per {_PER.get(m[2], m[2])}",
    ),
    ("/", re.compile(r"(?<=\d(?:st|nd|rd|th))/(?=\d)"), " slash "),
    ("–", re.compile(r"(?<=[\d%°CFmM])–(?=\d)"), "-"),
    ("$£€", re.compile(r"(?<=\d)[-–](?=[$£€]\d)"), " to "),
    # St. Louis is a saint's
    (("St",), re.compile(r"\bSt\b\.?(?=[,;:)]|$|\s+[a-z(])"), "Street"),
    (
        "-–",
        re.compile(rf"\b({_ANY_DAY})\.?[-–]({_ANY_DAY})\b"),
        lambda m: f"{_DAYS[m[1]]} to {_DAYS[m[2]]}",
    ),
    (
        "^",
        re.compile(r"(?<![\w.,^])(\d{1,9}|[a-z])\^(-?)(\d{1,9})(?!\w)"),
        r"\1 to the power of \2\3",
    ),
    # m² is a unit
    ("²", re.compile(r"(?<![\w.])(\d{1,9}|[a-ln-z])²(?!\w)"), r"\1 squared"),
    ("³", re.compile(r"(?<![\w.])(\d{1,9}|[a-ln-z])³(?!\w)"), r"\1 cubed"),
    ((), re.compile(LEADING_EMOJI), ""),
    ((), re.compile(rf" ?[{EMOJI}]+"), UNREAD),
]


_SIGN = re.compile(r"[^\w\s.,;:!?]|[^\x00-\x7f]|\bSt\b")


def say_symbols(text: str) -> str:
    """The text with its signs in words."""
    if not _SIGN.search(text):
        return text
    for signs, pattern, words in _RULES:
        if not signs or any(sign in text for sign in signs):
            text = pattern.sub(words, text)
    return text
