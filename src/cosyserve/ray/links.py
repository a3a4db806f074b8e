"""Links from workers on other machines: each connects back to the gateway and shows its token.

A worker listens nowhere, and who has no token is not heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Iterator

TOKEN_BYTES = 32
TOKEN_SECONDS = 5.0
# A machine that loses its power says no word: silence of about five seconds is its end.
KEEPALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def connect(address: tuple[str, int], token: bytes) -> socket.socket:
    """The worker's end of a link."""
    link = socket.create_connection(address, timeout=TOKEN_SECONDS)
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_silence(link)
    link.sendall(token)
    return link


def notice_silence(link: socket.socket) -> None:
    """A link whose far end has gone without a word breaks within seconds."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if option := getattr(socket, name, None):  # Linux has them all
            link.setsockopt(socket.IPPROTO_TCP, option, value)


class Links:
    """The gateway's end. Belongs to the running event loop."""

    def __init__(self) -> None:
        self._expected: dict[bytes, asyncio.Future[Streams]] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str) -> None:
        """On a free port of an address that the workers' machines can reach."""
        self._server = await asyncio.start_server(self._accept, host, 0)

    @property
    def address(self) -> tuple[str, int]:
        assert self._server
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    @contextlib.contextmanager
    def expected(self) -> Iterator[tuple[bytes, asyncio.Future[Streams]]]:
        """A token for a worker that is about to connect, and its streams once it has."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._expected[token] = arrived = asyncio.get_running_loop().create_future()
        try:
            yield token, arrived
        finally:
            self._expected.pop(token, None)
            if not arrived.cancel() and not arrived.exception():
                arrived.result()[1].close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            token = await asyncio.wait_for(reader.readexactly(TOKEN_BYTES), TOKEN_SECONDS)
            arrived = self._expected.pop(token)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, KeyError):
            writer.close()
            return
        notice_silence(writer.get_extra_info("socket"))
        arrived.set_result((reader, writer))
