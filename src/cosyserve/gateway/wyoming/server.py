"""The port that Wyoming clients connect to."""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from wyoming.error import Error
from wyoming.event import async_write_event

from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.errors import ClientLeft
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.wyoming.connection import WyomingConnection
from cosyserve.gateway.wyoming.wire import MAX_LINE

LAST_BYTES_SECONDS = 5.0  # that a client has to read the end of what was sent


@asynccontextmanager
async def wyoming_server(
    context: ConnectionContext, listener: socket.socket
) -> AsyncIterator[None]:
    """Serves on a listening socket inside the `async with`."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        client, *_ = writer.get_extra_info("peername") or ("",)  # it has left already
        record = Record(f"req_{uuid4().hex}", WyomingConnection.protocol, "wyoming", client=client)
        try:
            await WyomingConnection(reader, writer, context, record).serve()
        except ClientLeft:
            pass
        except Exception as error:
            refusal = context.ledger.refuse(record, error)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_BYTES_SECONDS):
                    await async_write_event(Error(refusal.detail, refusal.code).event(), writer)
        finally:
            await _close(writer)

    server = await asyncio.start_server(serve, sock=listener, limit=MAX_LINE)
    try:
        yield
    finally:
        server.close()


async def _close(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        try:
            async with asyncio.timeout(LAST_BYTES_SECONDS):
                await writer.wait_closed()
        except TimeoutError:
            writer.transport.abort()
