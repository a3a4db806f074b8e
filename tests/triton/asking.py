"""Asking a server in a test that is not asynchronous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cosyserve.triton.client import TritonClient
from tests.triton.server import Served

Result = TypeVar("Result")


def asking(served: Served, ask: Callable[[TritonClient], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        client = TritonClient(served.grpc)
        try:
            return await ask(client)
        except Exception as error:
            if served.process.log.exists():  # it is gone with a server that was replaced
                error.add_note(f"the end of the server's log:\n{served.process.tail()}")
            raise
        finally:
            await client.close()

    return asyncio.run(run())


def comes_to_rest(served: Served) -> None:
    until = time.monotonic() + 10
    while any((held := served.held()).values()):
        assert time.monotonic() < until, f"still held: {held}"
        time.sleep(0.05)
