"""Notations that the number grammars misread, rewritten so that they are read well."""

from __future__ import annotations

import re

from cosyserve.text.fixes import Fix, Fixes
from cosyserve.text.language import Language
from cosyserve.text.number_rules.english import digit_by_digit
from cosyserve.text.rewrites.addresses import say_addresses
from cosyserve.text.rewrites.symbols import UNREAD, say_symbols
from cosyserve.text.tokens.special import HIDDEN_NARROW

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_YUAN = re.compile(r"[￥¥]\s*(\.?\d[\d.]*\s*(?:[万亿]元?|元))")
_YUAN_IN_ENGLISH = re.compile(r"￥\s*([\d.,]*\d)")
_PERCENT_RANGE = re.compile(r"(?<![\d.])([\d.]+)%?[-~～–]([\d.]+%)")
_NUMBERED_RANGE = re.compile(r"(第\d+)[-~～](?=\d)")
_LETTER = f"A-Za-z{HIDDEN_NARROW}"
_NAME = re.compile(rf"(?<![{_LETTER}0-9.-])[{_LETTER}][{_LETTER}0-9.]*(?:-[{_LETTER}0-9.]+)+")
_UNREAD_HYPHEN = "\u2010"  # looks like '-', and no grammar knows it
CODE = r"(?:[Cc]ode|[Zz]ip|ZIP|PIN|OTP|[Pp]asscode|[Ee]xtension)"
NUMBER = r"(?:[Nn]umber|ID)"
_NUMERO = re.compile(r"\bNo\. ?(?=\d)")
_DECADE = re.compile(r"(?<![\w.,])(1\d|20)([1-9]0)'?s\b")
_NO_FRACTION = re.compile(r"(?<![\w/])(24|50|9)/(7|50|11)(?![\w/])")
_HOURS = re.compile(r"(?<![\w$£€¥.,])(\d{1,2})h ?(\d{1,2})m(?:in)?(?![\w/'’])")
_MILLIONS = re.compile(r"(?<![\w$£€¥.,])(\d{1,3}(?:\.\d{1,3})?)M(?![\w'’/-])")
_UNITS = {
    "m": "meter{}", "g": "gram{}", "h": "hour{}", "hr": "hour{}", "hrs": "hour{}",
    "mins": "minute{}", "sec": "second{}", "secs": "second{}", "yr": "year{}", "yrs": "year{}",
    "km/h": "kilometer{} per hour", "m/s": "meter{} per second", "MB/s": "megabyte{} per second",
}  # fmt: skip
SHORT_UNITS = tuple(sorted(_UNITS, key=len, reverse=True))
_QUANTITY = re.compile(rf"(?<![\w$£€¥.,])(\d[\d.,]*) ?({'|'.join(SHORT_UNITS)})(?![\w/'’])")
# Digits behind these name a thing and count nothing.
_CODE = re.compile(
    rf"\b({CODE}(?::| is| was)?) (\d{{4,12}})(?![\w%°{HIDDEN_NARROW}]|[.,:/-]\d)"
    rf"|\b({NUMBER}(?::| is| was)?) (\d{{5,12}})(?![\w%°{HIDDEN_NARROW}]|[.,:/-]\d)"
)
_BARE_THOUSAND = re.compile(r"^(negative |plus |number )?(?=thousand\b)")
_BLANK_BEFORE_MARK = re.compile(r" (?=[.,:;?!])")


def rewrite_source(text: str, language: Language, fixes: Fixes) -> str:
    """The written text as a grammar reads it well."""
    chinese = language is Language.CHINESE
    if Fix.ADDRESSES in fixes and not chinese:
        text = say_addresses(text)
    if Fix.SYMBOLS in fixes and not chinese:
        text = say_symbols(text)
    if Fix.PLAIN_AMOUNTS in fixes:
        text = _plain_amounts(text) if chinese else _YUAN_IN_ENGLISH.sub(r"\1 yuan", text)
    if Fix.RANGES in fixes:
        to = "到" if chinese else " to "
        text = _PERCENT_RANGE.sub(rf"\1%{to}\2", text)
        text = _NUMBERED_RANGE.sub(rf"\1{to}", text)
    if Fix.HYPHENS in fixes:
        text = _NAME.sub(lambda name: name[0].replace("-", _UNREAD_HYPHEN), text)
    if Fix.ENGLISH_NOTATIONS in fixes and not chinese:
        text = _english(text)
    return text


def rewrite_words(words: str, language: Language, fixes: Fixes) -> str:
    """The words that a grammar gave, without its slips."""
    if language is not Language.ENGLISH:
        return words
    if Fix.ENGLISH_NOTATIONS in fixes:
        words = _BARE_THOUSAND.sub(r"\1one ", words)
    if Fix.BLANKS_AT_MARKS in fixes:
        words = _BLANK_BEFORE_MARK.sub("", " ".join(words.split()))
    return words


def without_stand_ins(text: str, fixes: Fixes) -> str:
    """The whole text, after its numbers are read, with hyphens as they were written."""
    text = text.replace(_UNREAD_HYPHEN, "-") if Fix.HYPHENS in fixes else text
    return text.replace(UNREAD, "") if Fix.SYMBOLS in fixes else text


def _plain_amounts(text: str) -> str:
    return _YUAN.sub(lambda m: m[1].rstrip("元") + "元", _THOUSANDS.sub("", text))


def _english(text: str) -> str:
    text = _NUMERO.sub("number ", text)
    text = _DECADE.sub(r"\1 '\2s", text)
    text = _NO_FRACTION.sub(r"\1 \2", text)
    text = _CODE.sub(lambda m: f"{m[1] or m[3]} {digit_by_digit(m[2] or m[4])}", text)
    text = _MILLIONS.sub(r"\1 million", text)
    text = _HOURS.sub(r"\1 h \2 mins", text)
    return _QUANTITY.sub(_with_unit, text)


def _with_unit(quantity: re.Match[str]) -> str:
    number, unit = quantity.groups()
    return f"{number} {_UNITS[unit].format('' if number == '1' else 's')}"
