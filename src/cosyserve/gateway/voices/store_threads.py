"""Threads in which a store is read and written, so that no event loop waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cosyserve.errors import StoreError

Args = ParamSpec("Args")
Result = TypeVar("Result")

THREADS = 4  # of their own: a store that hangs must not hold up those that encode audio
SECONDS = 5.0

log = logging.getLogger("cosyserve.voices")


class StoreThreads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "voices")

    async def run(
        self, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SECONDS):
                return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))
        except TimeoutError:
            raise StoreError("the voice store doesn't answer: try again later") from None
        except StoreError as error:  # it names folders and hosts, which are nobody else's business
            log.warning("%s", error)
            raise StoreError("the voice store can't be used now: try again later") from error
