"""Asking a server in a test that is not asynchronous, over gRPC and HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np

from cosyserve.triton.client import TritonClient
from cosyserve.triton.http_client import TritonHTTPClient
from cosyserve.triton.tensors import Array
from tests.triton.server import Served

Result = TypeVar("Result")
LIMITS = {"first_seconds": 30.0, "between_seconds": 30.0}


def one(value: Any, kind: type) -> Array:
    return np.array([[value]], kind)


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


def over_http(served: Served, model: str, given: dict[str, Array]) -> dict[str, Array]:
    async def run() -> dict[str, Array]:
        client = TritonHTTPClient(served.http)
        try:
            return await client.infer(model, given, seconds=30)
        finally:
            await client.close()

    return asyncio.run(run())


def comes_to_rest(served: Served) -> None:
    until = time.monotonic() + 10
    while any((held := served.held()).values()):
        assert time.monotonic() < until, f"still held: {held}"
        time.sleep(0.05)
