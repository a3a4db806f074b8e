"""Sentences of a text that arrives piece by piece, each as soon as it is whole.

Knows no speech.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator

from cosyserve.text.split import ends_in_abbreviation, speakable

SHORTEST = 20  # characters: what is less waits for the next
CLOSERS = r"[\"'”’」』）)】》]*"
END = re.compile(rf"[.!?…]+{CLOSERS}(?=\s)|[。！？]+{CLOSERS}|\n")


async def sentences(pieces: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    rest = ""
    try:
        async for piece in pieces:
            rest += piece
            while end := _end(rest):
                yield rest[:end]
                rest = rest[end:]
        if speakable(rest):
            yield rest
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
