"""A paragraph to segments, each spoken as one utterance.

The text is cut after sentences, which are packed up to a length that the caller counts. No more of
the text is looked at than the next segment needs.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_WORD = re.compile(r"\s*\S+")
_NEXT_WORD = re.compile(r"\s*\S+\s")
_SHORTEST_BLOCK, _LONGEST_BLOCK = 160, 640  # characters
_WORDS = re.compile(rf"\s*\S{{1,{_SHORTEST_BLOCK}}}|\s+")
_LONGEST_ABBREVIATION = max(map(len, _DOTTED))
_CHARACTERS_PER_UNIT = 16  # no unit of length covers more characters than this, in real text
_GUESSES = 6  # where a text must end, before its middle is tried
_CONTEXT = 1 + _LONGEST_ABBREVIATION + 1  # characters before a mark that say what it is


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


def count_letters(text: str) -> int:
    """Letters and digits of any script."""
    return sum(map(str.isalnum, text))


def only_punctuation(text: str) -> bool:
    return all(unicodedata.category(c)[0] in "PS" for c in text)


def ends_in_abbreviation(text: str, dot: int) -> bool:
    """Whether the dot at this index belongs to an abbreviation."""
    tail = text[max(0, dot - _LONGEST_ABBREVIATION - 1) : dot + 1]
    return _ABBREVIATION.search(tail) is not None


def split(
    blocks: Iterable[str],
    *,
    wide: bool,
    length: Length,
    limits: SegmentLimits = DEFAULT_LIMITS,
    at_commas: bool = False,
    fixes: Fixes = ALL_FIXES,
) -> Iterator[str]:
    """The segments of a text that comes in blocks, wherever they end. Nothing but blanks gives
    none."""
    marks = (_WIDE_MARKS if wide else _NARROW_MARKS) + (_COMMAS if at_commas else "")
    longest = 2 * limits.longest if Fix.LONG_PIECES in fixes else 0
    pieces = _pieces(_measured(blocks, length), marks, wide, length, longest, fixes)
    return _packed(pieces, length, limits)


def _pieces(
    blocks: Iterable[str], marks: str, wide: bool, length: Length, longest: int, fixes: Fixes
) -> Iterator[tuple[str, str]]:
    """Sentences, or parts of them that are no longer than `longest` (0: as they are); and some of
    the text behind a part, if it is known."""

    def parts(sentence: str) -> Iterable[tuple[str, str]]:
        return _cut(sentence, length, longest) if longest else [(sentence, "")]

    text, start = "", 0  # the sentence that has not ended, behind some of the text before it
    fits = 0  # so much of it is within the limit, where that is known
    said = False
    for block in blocks:
        text += block
        said = said or bool(text.strip())
        if Fix.MARK_RUNS not in fixes or not said:  # the original looked at a text as a whole
            continue
        *ended, rest = _sentences(text, start, marks, fixes)
        for sentence in ended:
            yield from parts(sentence)
        # One that is far too long is cut before its end has come.
        if ended:
            fits = 0
        while longest and _settled(rest, fits := fits or _fitting(rest, length, longest)):
            end = _last_break(rest, fits)
            part, rest, fits = rest[:end], rest[end:], 0
            yield part, rest
        fits = fits if fits < len(rest) else 0  # with more text more may fit
        text = text[-len(rest) - _CONTEXT :]
        start = len(text) - len(rest)
    if Fix.NOTHING_TO_SAY in fixes and not said:
        return
    text += missing_end(text, wide=wide, marks=marks, fixes=fixes)
    for sentence in _sentences(text, start, marks, fixes):
        yield from parts(sentence)


def _measured(blocks: Iterable[str], length: Length) -> Iterator[str]:
    """The text in blocks of whole words, each measured as a whole first: a tokenizer that reads
    words reads many at once in the time of one. The first are short, for somebody waits."""
    held, given = "", 0
    for word in (word for block in blocks for word in _WORDS.findall(block)):
        held += word
        if len(held) >= min(max(_SHORTEST_BLOCK, given // 2), _LONGEST_BLOCK):
            length(held)
            yield held
            held, given = "", given + len(held)
    length(held)
    yield held


def _settled(piece: str, fits: int) -> bool:
    """Whether no more fits when the piece goes on: the word behind it is whole, or already cut."""
    return _NEXT_WORD.match(piece, fits) is not None or (
        fits < len(piece) and _WORD.fullmatch(piece[: fits + 1]) is not None
    )


def missing_end(text: str, *, wide: bool, marks: str = "", fixes: Fixes = ALL_FIXES) -> str:
    """The mark that a text lacks at its end: "" where it has one of `marks` ("": of a sentence)."""
    unquoted = text.rstrip(_CLOSERS) if Fix.MARK_RUNS in fixes else ""
    if (unquoted or text)[-1] in (marks or (_WIDE_MARKS if wide else _NARROW_MARKS)):
        return ""
    return "。" if wide else "."


def _sentences(text: str, start: int, marks: str, fixes: Fixes) -> list[str]:
    """The text from `start` on; all but the last are the same whatever follows."""
    pieces: list[str] = []
    for at in range(start, len(text)):
        if at < start or text[at] not in marks:
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


def _cut(piece: str, length: Length, limit: int) -> Iterator[tuple[str, str]]:
    """A piece in parts that are no longer than the limit, and what is behind each."""
    while (fits := _fitting(piece, length, limit)) < len(piece):
        end = _last_break(piece, fits)
        part, piece = piece[:end], piece[end:]
        yield part, piece
    yield piece, ""


def _fitting(piece: str, length: Length, limit: int) -> int:
    """How many characters of the piece are within the limit: whole words, or a part of the first.

    A part of a word would be read as a word of its own, which costs more than one that was read.
    """
    most = min(len(piece), limit * _CHARACTERS_PER_UNIT)
    ends = [word.end() for word in _WORD.finditer(piece, 0, most)]
    ends += [most] if ends[-1:] != [most] else []
    return _last(ends, piece, length, limit) or _last(range(1, ends[0]), piece, length, limit) or 1


def _last(ends: Sequence[int], piece: str, length: Length, limit: int) -> int:
    """The last of the rising ends within the limit, 0 if none is: looked for where it should be by
    the length up to the end before, so that little is measured, and little beyond it."""
    fitting, over = -1, len(ends)
    tries, aim = 0, float(limit)
    while over - fitting > 1:
        at = bisect_right(ends, aim) - 1 if tries < _GUESSES else (fitting + over) // 2
        at = min(max(at, fitting + 1), over - 1)
        size = length(piece[: ends[at]])
        fitting, over = (at, over) if size <= limit else (fitting, at)
        tries, aim = tries + 1, ends[at] * min(2.0, limit / max(size, 1))
    return ends[fitting] if fitting >= 0 else 0


def _last_break(piece: str, end: int) -> int:
    """Where to cut before `end`: after a comma, else before a blank, else at `end`."""
    half = end // 2
    comma = max(piece.rfind(c, half, end) for c in _COMMAS)
    if comma >= 0:
        return comma + 1
    blank = piece.rfind(" ", half + 1, end)
    return blank if blank > 0 else end


def _packed(
    pieces: Iterable[tuple[str, str]], length: Length, limits: SegmentLimits
) -> Iterator[str]:
    whole = ""  # a segment that the last one may still join
    current, size = "", 0
    for piece, behind in pieces:
        joined = length(current + piece)
        if size > limits.shortest and joined > limits.longest:
            if whole:
                yield whole
            whole, current = current, ""
            joined = length(piece)
        current += piece
        size = joined
        if whole and size >= limits.merge:
            yield whole
            whole = ""
        # Nothing is added to one of that length, and what is behind it need not join it.
        if size > max(limits.longest, limits.shortest) and length(behind) >= limits.merge:
            yield whole + current
            whole, current, size = "", "", 0
    if current:
        yield whole + current
