"""Notations that the number grammars misread, written so that they are read well.

Knows the grammars' habits, not the grammars.
"""

from __future__ import annotations

import re

from cosyserve.text.fixes import Mend, Mends
from cosyserve.text.language import Language

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_YUAN = re.compile(r"[￥¥]\s*([\d.]+\s*(?:[万亿]元?|元))")
_YUAN_IN_ENGLISH = re.compile(r"￥\s*([\d.,]*\d)")
_PERCENT_RANGE = re.compile(r"(?<![\d.])([\d.]+)%?[-~～–]([\d.]+%)")
_NUMBERED_RANGE = re.compile(r"(第\d+)[-~～](?=\d)")
_NAME = re.compile(r"(?<![A-Za-z0-9.-])[A-Za-z][A-Za-z0-9.]*(?:-[A-Za-z0-9.]+)+")
_UNREAD_HYPHEN = "\u2010"  # looks like '-', and no grammar knows it
_NUMERO = re.compile(r"\bNo\. ?(?=\d)")
_DECADE = re.compile(r"(?<![\w.,])(1\d|20)([1-9]0)'?s\b")
_NO_FRACTION = re.compile(r"(?<![\w/])(24|50|9)/(7|50|11)(?![\w/])")
_SHORT_PHONE = re.compile(r"(?<![\w)-])(?<!\) )\d{3}-\d{4}(?![\w-])")
_QUANTITY = re.compile(r"(?<![\w$£€¥.,])(\d[\d.,]*) ?(km/h|[mgh])(?![\w/'’])")
_UNITS = {"m": "meter{}", "g": "gram{}", "h": "hour{}", "km/h": "kilometer{} per hour"}
_BARE_THOUSAND = re.compile(r"^(negative |plus )?(?=thousand\b)")
_BLANK_BEFORE_MARK = re.compile(r" (?=[.,:;?!])")


def mended_source(text: str, language: Language, mends: Mends) -> str:
    """The written text, before a grammar sees it."""
    chinese = language is Language.CHINESE
    if Mend.PLAIN_AMOUNTS in mends:
        text = _plain_amounts(text) if chinese else _YUAN_IN_ENGLISH.sub(r"\1 yuan", text)
    if Mend.RANGES in mends:
        to = "到" if chinese else " to "
        text = _PERCENT_RANGE.sub(rf"\1%{to}\2", text)
        text = _NUMBERED_RANGE.sub(rf"\1{to}", text)
    if Mend.HYPHENS in mends:
        text = _NAME.sub(lambda name: name[0].replace("-", _UNREAD_HYPHEN), text)
    if Mend.ENGLISH_SLIPS in mends and not chinese:
        text = _english(text)
    return text


def mended_words(words: str, language: Language, mends: Mends) -> str:
    """What a grammar made of it."""
    if language is not Language.ENGLISH:
        return words
    if Mend.ENGLISH_SLIPS in mends:
        words = _BARE_THOUSAND.sub(r"\1one ", words)
    if Mend.BLANKS_AT_MARKS in mends:
        words = _BLANK_BEFORE_MARK.sub("", " ".join(words.split()))
    return words


def visible_hyphens(text: str, mends: Mends) -> str:
    """The whole text, afterwards."""
    return text.replace(_UNREAD_HYPHEN, "-") if Mend.HYPHENS in mends else text


def _plain_amounts(text: str) -> str:
    return _YUAN.sub(lambda m: m[1].rstrip("元") + "元", _THOUSANDS.sub("", text))


def _english(text: str) -> str:
    text = _NUMERO.sub("number ", text)
    text = _DECADE.sub(r"\1 '\2s", text)
    text = _NO_FRACTION.sub(r"\1 \2", text)
    text = _SHORT_PHONE.sub(lambda m: " ".join(m[0]).replace(" - ", ", "), text)
    return _QUANTITY.sub(_with_unit, text)


def _with_unit(quantity: re.Match[str]) -> str:
    number, unit = quantity.groups()
    return f"{number} {_UNITS[unit].format('' if number == '1' else 's')}"
