"""Sentences of a text that arrives piece by piece, each as soon as it is whole."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from cosyserve.text.arriving.english import in_number
from cosyserve.text.split import ends_in_abbreviation, speakable

MIN_CHARACTERS = 20  # a shorter sentence waits for the next
CLOSERS = r"[\"'”’」』）)】》]*"
END = re.compile(rf"[.!?…]+{CLOSERS}(?=\s)|[。！？]+{CLOSERS}|\n")


class SentenceBuffer:
    """Holds the text that has arrived and is no whole sentence yet."""

    def __init__(self) -> None:
        self._rest = ""

    def push(self, piece: str) -> Iterator[str]:
        """Adds a piece -> the sentences that are whole now."""
        self._rest += piece
        while end := _end(self._rest):
            sentence, self._rest = self._rest[:end], self._rest[end:]
            yield sentence

    def flush(self) -> Iterator[str]:
        """The text is over -> what is left of it."""
        if speakable(self._rest):
            yield self._rest
        self._rest = ""


def sentences(pieces: Iterator[str]) -> Iterator[str]:
    """The sentences of a text in pieces."""
    buffer = SentenceBuffer()
    for piece in pieces:
        yield from buffer.push(piece)
    yield from buffer.flush()


async def sentences_async(pieces: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """The sentences of a text whose pieces are awaited; ending it ends the pieces."""
    buffer = SentenceBuffer()
    try:
        async for piece in pieces:
            for sentence in buffer.push(piece):
                yield sentence
        for sentence in buffer.flush():
            yield sentence
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _end(text: str) -> int:
    """Where the first sentence ends that is long enough; 0: nowhere yet."""
    for match in END.finditer(text):
        end = match.end()
        if end < MIN_CHARACTERS or not speakable(text[:end]):
            continue
        dot = text[match.start()] == "."
        if dot and (ends_in_abbreviation(text, match.start()) or in_number(text, end)):
            continue
        return end
    return 0
