"""Sentences, or clauses, of a text that arrives piece by piece, each as soon as it is whole."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Literal

from cosyserve.text.arriving.english import NEAR, in_number
from cosyserve.text.split import ends_in_abbreviation, speakable

Split = Literal["sentence", "clause"]

MIN_CHARACTERS = {"sentence": 20, "clause": 10}  # what is shorter waits for the next
CLOSERS = r"[\"'”’」』）)】》]*"


def _end_of(marks: str, wide_marks: str) -> re.Pattern[str]:
    """Marks with a blank behind them, wide ones without, or a line's end. A run of marks is tried
    once, from its first: from each of them, it would take its length squared."""
    narrow = rf"(?<![{marks}])[{marks}]+{CLOSERS}(?=\s)"
    return re.compile(rf"{narrow}|(?<![{wide_marks}])[{wide_marks}]+{CLOSERS}|\n")


END = {
    "sentence": _end_of(".!?…", "。！？"),
    "clause": _end_of(".!?…,;:", "。！？，、；："),
}


class SentenceBuffer:
    """Holds the text that has arrived and is no whole sentence, or clause, yet."""

    def __init__(self, split: Split = "sentence") -> None:
        self._split = split
        self._keep("")

    def push(self, piece: str) -> Iterator[str]:
        """Adds a piece -> the sentences that are whole now."""
        self._rest += piece
        while end := self._end():
            sentence = self._rest[:end]
            self._keep(self._rest[end:])
            yield sentence

    def flush(self) -> Iterator[str]:
        """The text is over -> what is left of it."""
        if speakable(self._rest):
            yield self._rest
        self._keep("")

    def _keep(self, rest: str) -> None:
        self._rest = rest
        self._silent = 0  # characters at its start that nobody speaks
        self._decided = 0  # characters in which there is no end, whatever follows

    def _end(self) -> int:
        """Where the first sentence ends that is long enough; 0: nowhere yet."""
        rest = self._rest
        while self._silent < len(rest) and not speakable(rest[self._silent]):
            self._silent += 1
        for match in END[self._split].finditer(rest, max(self._silent, self._decided)):
            end = match.end()
            if end >= MIN_CHARACTERS[self._split] and _is_end(rest, match):
                return end
            if end + NEAR < len(rest):
                self._decided = end
        return 0


def sentences(pieces: Iterator[str]) -> Iterator[str]:
    """The sentences of a text in pieces."""
    buffer = SentenceBuffer()
    for piece in pieces:
        yield from buffer.push(piece)
    yield from buffer.flush()


async def sentences_async(
    pieces: AsyncIterator[str], split: Split = "sentence"
) -> AsyncGenerator[str, None]:
    """The sentences of a text whose pieces are awaited; ending it ends the pieces."""
    buffer = SentenceBuffer(split)
    try:
        async for piece in pieces:
            for sentence in buffer.push(piece):
                yield sentence
        for sentence in buffer.flush():
            yield sentence
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def ends_sentence(text: str, following: str) -> bool:
    """Whether a sentence ends with the text, before the one that follows."""
    joined = f"{text} {following}"
    found = (match for match in END["sentence"].finditer(joined) if match.end() == len(text))
    return any(_is_end(joined, match) for match in found)


def _is_end(text: str, match: re.Match[str]) -> bool:
    """Whether the mark belongs to no abbreviation and no number."""
    mark = text[match.start()]
    if mark == "." and ends_in_abbreviation(text, match.start()):
        return False
    return not (mark in ".,;:" and in_number(text, match.end()))
