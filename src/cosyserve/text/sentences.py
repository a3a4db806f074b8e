"""Sentences of a text that arrives piece by piece, each as soon as it is whole.

Knows no speech.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from cosyserve.text.split import ends_in_abbreviation, speakable

SHORTEST = 20  # characters: what is less waits for the next
CLOSERS = r"[\"'”’」』）)】》]*"
END = re.compile(rf"[.!?…]+{CLOSERS}(?=\s)|[。！？]+{CLOSERS}|\n")


class ArrivingSentences:
    """What has arrived and is no whole sentence yet."""

    def __init__(self) -> None:
        self._rest = ""

    def push(self, piece: str) -> Iterator[str]:
        """Sentences that are whole now."""
        self._rest += piece
        while end := _end(self._rest):
            sentence, self._rest = self._rest[:end], self._rest[end:]
            yield sentence

    def flush(self) -> Iterator[str]:
        """What is left when the text is over."""
        if speakable(self._rest):
            yield self._rest
        self._rest = ""


def sentences(pieces: Iterator[str]) -> Iterator[str]:
    arriving = ArrivingSentences()
    for piece in pieces:
        yield from arriving.push(piece)
    yield from arriving.flush()


async def sentences_later(pieces: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    arriving = ArrivingSentences()
    try:
        async for piece in pieces:
            for sentence in arriving.push(piece):
                yield sentence
        for sentence in arriving.flush():
            yield sentence
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _end(text: str) -> int:
    """Where the first sentence ends that is long enough; 0: nowhere yet."""
    for match in END.finditer(text):
        short = match.end() < SHORTEST or not speakable(text[: match.end()])
        if not short and not ends_in_abbreviation(text, match.start()):
            return match.end()
    return 0
