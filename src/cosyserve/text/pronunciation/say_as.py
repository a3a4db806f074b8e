"""What SSML's <say-as> makes of a text, in words or in what is read as such."""

from __future__ import annotations

from collections.abc import Callable

from cosyserve.errors import InputError
from cosyserve.text.number_rules.chinese import LONGEST_VALUE, chinese_value
from cosyserve.text.number_rules.english import ordinal
from cosyserve.text.number_rules.numerals import in_words

MAX_DIGITS = 15  # of an ordinal number


def say_as(text: str, kind: str, *, chinese: bool) -> str:
    """`kind` is the value of interpret-as."""
    if kind not in _KINDS:
        raise InputError(
            f"SSML: no interpret-as {kind!r:.40}: use {', '.join(_KINDS)}; dates, times and "
            "amounts are read without it"
        )
    return _KINDS[kind](text, chinese)


def _characters(text: str, chinese: bool) -> str:
    return " ".join(letter.upper() for letter in text if not letter.isspace())


def _digits(text: str, chinese: bool) -> str:
    digits = [letter for letter in text if letter.isdecimal()]
    if not digits:
        raise InputError(f"SSML: there are no digits in {text!r:.40}")
    return " ".join(digits)


def _cardinal(text: str, chinese: bool) -> str:
    digits = _whole_number(text, LONGEST_VALUE if chinese else 36)
    return chinese_value(digits) if chinese else in_words(digits)


def _ordinal(text: str, chinese: bool) -> str:
    digits = _whole_number(text, LONGEST_VALUE if chinese else MAX_DIGITS)
    return f"第{chinese_value(digits)}" if chinese else ordinal(int(digits))


def _whole_number(text: str, longest: int) -> str:
    digits = text.replace(",", "").lstrip("0") or "0"
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > longest:
        raise InputError(f"SSML: {text!r:.40} is no whole number of {longest} digits at most")
    return digits


_KINDS: dict[str, Callable[[str, bool], str]] = {
    "characters": _characters,
    "spell-out": _characters,
    "digits": _digits,
    "telephone": _digits,
    "cardinal": _cardinal,
    "number": _cardinal,
    "ordinal": _ordinal,
}
