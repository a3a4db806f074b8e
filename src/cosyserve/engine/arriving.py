"""A text that arrives piece by piece, handed on while its speech is listened to.

Knows no engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from cosyserve.contracts import InputError


@asynccontextmanager
async def feeding(
    text: str | Iterator[str] | AsyncIterator[str],
    push: Callable[[str], None],
    end: Callable[[], None],
    fail: Callable[[Exception], None],
) -> AsyncGenerator[None, None]:
    """Pieces go to `push` until the block is left; a text that is whole needs nothing."""
    if isinstance(text, str):
        yield
        return
    if not isinstance(text, AsyncIterator):
        raise InputError("text in pieces must be an asynchronous iterator, or it stops everything")

    async def feed() -> None:
        try:
            async for piece in text:
                push(piece)
            end()
        except Exception as error:  # whoever listens must hear of it, not wait for ever
            fail(error)

    feeder = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeder.cancel()
        await asyncio.wait([feeder])
        if isinstance(text, AsyncGenerator):
            await text.aclose()
