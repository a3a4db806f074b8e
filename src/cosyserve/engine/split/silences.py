"""Silences as our own LM cuts them short, for an LM that runs elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from cosyserve.backends.protocols import LMBackend, LMRequest, SpeechTokens
from cosyserve.engine.compute.generation import MAX_SILENCE


class ShortSilences:
    """Implements `LMBackend`: of a long silence only the first tokens are heard; the LM remembers
    all of it."""

    def __init__(self, lm: LMBackend, silent: frozenset[int]) -> None:
        self.lm = lm
        self._silent = silent

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        silence = 0
        async with aclosing(self.lm.generate(request)) as pieces:
            async for piece in pieces:
                heard = []
                for token in piece.ids:
                    silence = silence + 1 if token in self._silent else 0
                    if silence <= MAX_SILENCE:
                        heard.append(token)
                if heard or piece.finish:
                    yield replace(piece, ids=tuple(heard))

    async def close(self) -> None:
        await self.lm.close()


def short_silences(lm: LMBackend, silent: frozenset[int]) -> LMBackend:
    """The LM with its silences cut short, if it has tokens of silence."""
    return ShortSilences(lm, silent) if silent else lm
