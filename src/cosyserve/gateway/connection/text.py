"""The buffer between a client that sends text and an engine that reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Literal

from cosyserve.gateway.errors import Refusal
from cosyserve.text.pronunciation.ssml import is_ssml, may_become_ssml
from cosyserve.text.sentences import Split
from cosyserve.text.split import speakable

TextSplit = Literal[Split, "none"]  # what is spoken as soon as it is there; none: all of the text


class TextBuffer:
    """A text that arrives in pieces, bounded in characters and in seconds between pieces.

    Pieces that wait are read as one, so that many tiny ones cost little. An empty one says that
    more will come.
    """

    def __init__(
        self,
        max_characters: int,
        idle_seconds: float,
        split: TextSplit | None = None,
    ) -> None:
        """`split` None: as the model speaks a text that arrives."""
        self._max_characters = max_characters
        self._idle_seconds = idle_seconds
        self._waiting = ""
        self._changed = asyncio.Event()
        self.split = split
        self.before = 0  # characters of the same stream before it
        self.characters = 0
        self.started: float | None = None  # when there was something to say
        self.ended = False
        self.flushed = False  # it has ended, and its stream goes on

    def push(self, piece: str) -> None:
        if self.characters + len(piece) > self._max_characters:
            raise Refusal(
                400,
                f"the text has more than {self._max_characters} characters, which is the limit; "
                "begin another utterance",
                "input_too_long",
                param="text",
            )
        self.characters += len(piece)
        self._waiting += piece
        if self.started is None and speakable(piece):
            self.started = time.perf_counter()
        self._changed.set()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    async def begin(self) -> str | AsyncGenerator[str, None]:
        """Waits until there is something to say -> all of the text, piece by piece; SSML, and what
        is not split, whole."""
        start = ""
        while self.started is None or may_become_ssml(start):
            piece = await self._next()
            start += piece
            if not piece:
                break
        if self.started is None:
            raise nothing_to_say()
        if is_ssml(start) or self.split == "none":
            return start + "".join([piece async for piece in self._pieces()])
        self._waiting = start + self._waiting
        return self._pieces()

    async def _pieces(self) -> AsyncGenerator[str, None]:
        while piece := await self._next():
            yield piece

    async def _next(self) -> str:
        """All that waits; "" at the end of the text."""
        try:
            while not (self._waiting or self.ended):
                self._changed.clear()
                async with asyncio.timeout(self._idle_seconds):
                    await self._changed.wait()
        except TimeoutError:
            message = f"no text came for {self._idle_seconds:g} s: send more, or its end, in time"
            raise Refusal(408, message, "timeout") from None
        piece, self._waiting = self._waiting, ""
        return piece


def nothing_to_say() -> Refusal:
    return Refusal(400, "the text holds nothing to say", "invalid_value", param="text")
