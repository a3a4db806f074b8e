"""Written text to text that reads as it is spoken.

Chinese and English only; other languages pass as they are.
"""

from __future__ import annotations

import re

from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes
from cosyserve.text.language import Language, detect
from cosyserve.text.numbers import Allowance, Reader, read_aloud, read_numbers
from cosyserve.text.numerals import spell_digits
from cosyserve.text.special import HIDDEN_NARROW, STRESSED
from cosyserve.text.split import ends_in_abbreviation

# A blank is a word boundary only between two visible ASCII characters.
_VISIBLE = rf"[\x00-\x1f!-\x7f{HIDDEN_NARROW}]"
_IDLE_BLANK = re.compile(f"(?<!{_VISIBLE}) | (?!{_VISIBLE})")
_BLANKS = re.compile(r"\s+")
_SILENT = str.maketrans({**dict.fromkeys("（）【】`"), "²": "平方", "³": "立方"})
_DOTS = re.compile(r"\.+")
_VERSION_DOT = re.compile(r"(?<=[零一二三四五六七八九十百千])\.(?=[零一二三四五六七八九十百千])")
_STRESS = 0xE000  # private characters, which nobody reads as digits
_HIDDEN_STRESS = re.compile("[\ue000-\ue002]")
_LAST_COMMAS = re.compile(r"[，,、]+$")


def is_marked_up(text: str) -> bool:
    """Whether it holds control tokens such as <|endofprompt|>: its author has prepared it then."""
    return "<|" in text and "|>" in text


def spoken_text(text: str, *, read: Reader = read_numbers, fixes: Fixes = ALL_FIXES) -> str:
    """A text of any language as it is spoken, unless it is marked up. `read` as below."""
    if not text or is_marked_up(text):
        return text
    return spoken_form(text, detect(text, fixes), read=read, fixes=fixes)


def spoken_form(
    text: str,
    language: Language,
    *,
    read: Reader = read_numbers,
    fixes: Fixes = ALL_FIXES,
) -> str:
    """The text as it is spoken. `read` turns the numbers of a stretch of text into words."""
    words = spoken_part(text.strip(), language, read=read, fixes=fixes)
    return spoken_end(words) if language is Language.CHINESE else words


def spoken_part(
    text: str,
    language: Language,
    *,
    read: Reader,
    fixes: Fixes = ALL_FIXES,
    allowance: Allowance | None = None,
) -> str:
    """A part of a text as it is spoken, if nothing around it belongs to its numbers."""
    if Fix.SOUNDS in fixes and STRESSED.search(text):
        hidden = STRESSED.sub(lambda sound: f"[{sound[1]}{chr(_STRESS + int(sound[2]))}]", text)
        words = spoken_part(hidden, language, read=read, fixes=fixes, allowance=allowance)
        return _HIDDEN_STRESS.sub(lambda stress: str(ord(stress[0]) - _STRESS), words)
    if language is Language.ENGLISH:
        return spell_digits(read_aloud(text, language, read, fixes, allowance), fixes)
    if language is Language.CHINESE:
        return chinese_marks(read_aloud(text, language, read, fixes, allowance), fixes)
    return text


def spoken_end(text: str) -> str:
    """Chinese that ends with a comma ends with a full stop."""
    return _LAST_COMMAS.sub("。", text)


def chinese_marks(text: str, fixes: Fixes = ALL_FIXES) -> str:
    """Chinese without blanks and brackets that nobody hears, with full stops for dots."""
    text = _BLANKS.sub(" ", text) if Fix.LINE_BREAKS in fixes else text.replace("\n", "")
    text = _IDLE_BLANK.sub("", text)
    if Fix.SENTENCE_DOTS in fixes:
        text = _DOTS.sub(_full_stop, _VERSION_DOT.sub("点", text))
    else:
        text = text.replace(".", "。")
    return text.replace(" - ", "，").translate(_SILENT).replace("——", " ")


def _full_stop(dots: re.Match[str]) -> str:
    if len(dots[0]) > 1:
        return "…"
    text, at = dots.string, dots.start()
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    in_word = after.isascii() and after.isalnum() and before.isascii()
    return "." if in_word or ends_in_abbreviation(text, at) else "。"
