"""A text on its way from a client to an engine, bounded in characters and in silence.

Knows no connection and no engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from cosyserve.gateway.errors import Refusal


class ArrivingText:
    """Pieces that nobody has taken yet are handed over as one: many tiny ones cost little."""

    def __init__(self, max_characters: int, idle_seconds: float) -> None:
        self._max_characters, self._idle_seconds = max_characters, idle_seconds
        self._waiting = ""
        self._news = asyncio.Event()
        self.characters = 0
        self.begun: float | None = None  # when there was something to say
        self.ended = False

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
        if self.begun is None and piece.strip():
            self.begun = time.perf_counter()
        self._news.set()

    def end(self) -> None:
        self.ended = True
        self._news.set()

    async def begin(self) -> AsyncGenerator[str, None]:
        """Waits until there is something to say -> all of the text, piece by piece."""
        blank = ""
        while self.begun is None:
            piece = await self._next()
            if not piece:
                raise Refusal(400, "the text holds nothing to say", "invalid_value", param="text")
            blank += piece
        self._waiting = blank + self._waiting
        return self._pieces()

    async def _pieces(self) -> AsyncGenerator[str, None]:
        while piece := await self._next():
            yield piece

    async def _next(self) -> str:
        """Nothing: the text is over."""
        try:
            async with asyncio.timeout(self._idle_seconds):
                while not (self._waiting or self.ended):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            message = f"no text came for {self._idle_seconds:g} s: send more, or 'end', in time"
            raise Refusal(408, message, "timeout") from None
        piece, self._waiting = self._waiting, ""
        return piece
