"""A paragraph to segments, each spoken as one utterance.

The text is cut after sentences, which are packed up to a length that the caller counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cosyserve.text.abbreviations import ABBREVIATIONS
from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes

Length = Callable[[str], int]

_WIDE_MARKS = "。？！；：、.?!;"
_NARROW_MARKS = ".?!;:"
_COMMAS = "，,"
_QUOTES = '"”'
_CLOSERS = _QUOTES + "'’」』）)】》"
_DOTTED = [entry.written for entry in ABBREVIATIONS if not entry.may_end_sentence]
_ABBREVIATION = re.compile(rf"(?<![A-Za-z])(?:[A-Z]|{'|'.join(map(re.escape, _DOTTED))})\.$")
_LONGEST_ABBREVIATION = max(map(len, _DOTTED))
_CHARACTERS_PER_UNIT = 16  # no unit of length covers more characters than this, in real text


@dataclass(frozen=True)
class SegmentLimits:
    """Lengths of segments: a new one starts past `longest` once `shortest` is reached; a last
    one below `merge` joins the one before. A sentence of twice the longest length is cut."""

    longest: int = 80
    shortest: int = 60
    merge: int = 20


DEFAULT_LIMITS = SegmentLimits()


def speakable(text: str) -> bool:
    """Whether it holds a letter or a digit of any script."""
    return any(unicodedata.category(c)[0] in "LN" for c in text)


def only_punctuation(text: str) -> bool:
    return all(unicodedata.category(c)[0] in "PS" for c in text)


def ends_in_abbreviation(text: str, dot: int) -> bool:
    """Whether the dot at this index belongs to an abbreviation."""
    tail = text[max(0, dot - _LONGEST_ABBREVIATION - 1) : dot + 1]
    return _ABBREVIATION.search(tail) is not None


def split(
    text: str,
    *,
    wide: bool,
    length: Length,
    limits: SegmentLimits = DEFAULT_LIMITS,
    at_commas: bool = False,
    fixes: Fixes = ALL_FIXES,
) -> list[str]:
    """The segments of a text. Nothing but blanks gives none."""
    if Fix.NOTHING_TO_SAY in fixes and not text.strip():
        return []
    marks = (_WIDE_MARKS if wide else _NARROW_MARKS) + (_COMMAS if at_commas else "")
    pieces = _sentences(text + missing_end(text, wide=wide, marks=marks, fixes=fixes), marks, fixes)
    if Fix.LONG_PIECES in fixes:
        pieces = [part for piece in pieces for part in _cut(piece, length, 2 * limits.longest)]
    return _packed(pieces, length, limits)


def missing_end(text: str, *, wide: bool, marks: str = "", fixes: Fixes = ALL_FIXES) -> str:
    """The mark that a text lacks at its end: "" where it has one of `marks` ("": of a sentence)."""
    unquoted = text.rstrip(_CLOSERS) if Fix.MARK_RUNS in fixes else ""
    if (unquoted or text)[-1] in (marks or (_WIDE_MARKS if wide else _NARROW_MARKS)):
        return ""
    return "。" if wide else "."


def _sentences(text: str, marks: str, fixes: Fixes) -> list[str]:
    pieces: list[str] = []
    start = 0
    for at, mark in enumerate(text):
        if at < start or mark not in marks:
            continue
        if Fix.DOTS_IN_WORDS in fixes and _in_word(text, at):
            continue
        end = at + 1
        if Fix.MARK_RUNS in fixes:
            while end < len(text) and text[end] in marks + _CLOSERS:
                end += 1
            pieces.append(text[start:end])
        else:
            if at > start:
                pieces.append(text[start:end])
            if end < len(text) and text[end] in _QUOTES:
                pieces[-1] += text[end]
                end += 1
        start = end
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def _in_word(text: str, at: int) -> bool:
    """Whether the mark ends no sentence: '3.14', '15:30', 'a.com/b?c', 'http://', 'Dr. Who'."""
    before, mark, after = text[at - 1 : at], text[at], text[at + 1 : at + 2]
    if not mark.isascii() or not after:
        return False
    if after.isascii() and (after.isalnum() or after == "/"):
        return before.isascii() and before.isalnum()
    return mark == "." and ends_in_abbreviation(text, at)


def _cut(piece: str, length: Length, limit: int) -> Iterator[str]:
    """A piece in parts that are no longer than the limit."""
    window = limit * _CHARACTERS_PER_UNIT
    while len(piece) > window or length(piece) > limit:
        # The longest start within the limit, by halving.
        fits, too_long = 1, min(window, len(piece))
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if length(piece[:middle]) <= limit:
                fits = middle
            else:
                too_long = middle
        end = _last_break(piece, fits)
        yield piece[:end]
        piece = piece[end:]
    yield piece


def _last_break(piece: str, end: int) -> int:
    """Where to cut before `end`: after a comma, else before a blank, else at `end`."""
    half = end // 2
    comma = max(piece.rfind(c, half, end) for c in _COMMAS)
    if comma >= 0:
        return comma + 1
    blank = piece.rfind(" ", half + 1, end)
    return blank if blank > 0 else end


def _packed(pieces: list[str], length: Length, limits: SegmentLimits) -> list[str]:
    segments: list[str] = []
    current = ""
    for piece in pieces:
        if length(current + piece) > limits.longest and length(current) > limits.shortest:
            segments.append(current)
            current = ""
        current += piece
    if not current:
        return segments
    if segments and length(current) < limits.merge:
        segments[-1] += current
    else:
        segments.append(current)
    return segments
