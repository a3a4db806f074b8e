"""Written text to text that reads as it is spoken.

Chinese and English only; other languages pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes
from cosyserve.text.language import Language, detect
from cosyserve.text.number_rules.numerals import spell_digits
from cosyserve.text.numbers import Allowance, Reader, read_aloud, read_numbers
from cosyserve.text.split import ends_in_abbreviation
from cosyserve.text.tokens.special import HIDDEN_NARROW, STRESSED

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
_BLOCK = 80  # characters that are read at once, at least
# What becomes of these depends on what follows, or stands before them.
_BOUND_RIGHT = re.compile(r"[\s.\-—，,、（）【】`]")
_BOUND_LEFT = re.compile(r"[\s.\-—]")


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
    return "".join(spoken_blocks(text, language, read=read, fixes=fixes))


def spoken_blocks(
    text: str,
    language: Language,
    *,
    read: Reader = read_numbers,
    fixes: Fixes = ALL_FIXES,
) -> Iterator[str]:
    """The text as it is spoken, in blocks: the numbers of one are read when it is asked for."""
    for block in _blocks(text.strip(), language, read, fixes):
        # No block but the last ends with a comma.
        yield spoken_end(block) if language is Language.CHINESE else block


def spoken_part(
    text: str,
    language: Language,
    *,
    read: Reader,
    fixes: Fixes = ALL_FIXES,
    allowance: Allowance | None = None,
) -> str:
    """A part of a text as it is spoken, if nothing around it belongs to its numbers."""
    return "".join(_blocks(text, language, read, fixes, allowance))


def _blocks(
    text: str,
    language: Language,
    read: Reader,
    fixes: Fixes,
    allowance: Allowance | None = None,
) -> Iterator[str]:
    if language not in (Language.ENGLISH, Language.CHINESE):
        yield text
        return
    stressed = Fix.SOUNDS in fixes and STRESSED.search(text) is not None
    if stressed:
        text = STRESSED.sub(lambda sound: f"[{sound[1]}{chr(_STRESS + int(sound[2]))}]", text)

    def spoken(block: str) -> str:
        words = (spell_digits if language is Language.ENGLISH else chinese_marks)(block, fixes)
        if not stressed:
            return words
        return _HIDDEN_STRESS.sub(lambda stress: str(ord(stress[0]) - _STRESS), words)

    held = ""
    for stretch in filter(None, read_aloud(text, language, read, fixes, allowance)):
        if len(held) >= _BLOCK and _apart(held[-1], stretch[0], language):
            yield spoken(held)
            held = ""
        held += stretch
    yield spoken(held)


def _apart(last: str, first: str, language: Language) -> bool:
    """Whether two blocks, one of which ends as the other begins, are spoken each for itself."""
    if language is Language.ENGLISH:
        return not (last.isdigit() and first.isdigit())
    return not (_BOUND_RIGHT.match(last) or _BOUND_LEFT.match(first))


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
