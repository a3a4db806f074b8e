"""The server process: a socket, signals, and an orderly end.

`serve` is awaited in a uvloop; see `cosyserve serve`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from cosyserve.contracts import Engine
from cosyserve.gateway.app import create_app
from cosyserve.gateway.connection.connections import Connections
from cosyserve.gateway.doors import Doors
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.limits import Gate, Limits
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.status import NOT_SPEECH
from cosyserve.gateway.transport.http import BoundedHTTPProtocol
from cosyserve.gateway.transport.listening import BACKLOG, Transport, allow_files, listen
from cosyserve.gateway.transport.websocket import BoundedWebSocketProtocol
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.malloc import return_large_blocks
from cosyserve.voices.store import VoiceStore

if TYPE_CHECKING:
    from cosyserve.gateway.telemetry.spans import Spans

CLOSED = Doors()
PLAIN = Transport()
STRAGGLER_SECONDS = 1  # for connections that are still open once the time to finish is over
LARGE_BLOCK = 1 << 20  # a whole text in wav has more; glibc would keep those of many


async def serve(
    engine: Engine,
    store: VoiceStore,
    host: str,
    port: int,
    limits: Limits,
    keys: KeyRing | None = None,
    default_voice: str = "",
    policy: Policy | None = None,
    spans: Spans | None = None,
    doors: Doors = CLOSED,
    transport: Transport = PLAIN,
) -> None:
    """Serves until SIGTERM or SIGINT, then lets running requests finish and closes the engine."""
    configure_logging()
    return_large_blocks(LARGE_BLOCK)
    allow_files()
    keys = keys or KeyRing()
    try:
        with ExitStack() as stack:
            listeners = [stack.enter_context(listen(host, port, limits.seconds))]
            if doors.legacy:
                listener = listen(host, doors.legacy, limits.seconds, "--legacy-port")
                listeners.append(stack.enter_context(listener))
            app = create_app(
                *(engine, store, limits, keys, default_voice, policy, spans),
                legacy=bool(doors.legacy),
            )
            async with doors.open(host, app.state.context, keys) as addresses:
                await Server(app, engine, limits, transport, addresses).serve(sockets=listeners)
    finally:
        await engine.close()
        if spans:
            await asyncio.to_thread(spans.close)


def configure_logging() -> None:
    """What the server has to say goes to standard error, a line each."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("cosyserve").setLevel(logging.INFO)


class Server(uvicorn.Server):
    def __init__(
        self,
        app: FastAPI,
        engine: Engine,
        limits: Limits,
        transport: Transport,
        addresses: Sequence[str] = (),
    ) -> None:
        """`addresses` are served by others and made known here."""
        super().__init__(config(app, limits, transport))
        self._addresses = addresses
        self._engine = engine
        self._gate: Gate = app.state.gate
        self._connections: Connections = app.state.connections
        self._decoder: Decoder = app.state.decoder
        self._encoders: Encoders = app.state.encoders
        self._seconds_to_finish = limits.shutdown_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._decoder.prepare()
        self._encoders.prepare()
        await super().startup(sockets)
        for listener in sockets or []:
            note = "" if self._engine.model.speech else f" ({NOT_SPEECH})"
            print(f"listening on {_address(listener, self.config.is_ssl)}{note}", flush=True)
        for address in self._addresses:
            print(f"listening on {address}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """New requests are refused, which still takes a server, while the running ones finish."""
        self._gate.close()
        self._connections.close()
        await self._wait_while(
            lambda: self._gate.inside + self._connections.count, self._seconds_to_finish
        )
        self._connections.abort()
        await self._wait_while(lambda: self._connections.count, STRAGGLER_SECONDS)
        try:
            await super().shutdown(sockets)
        finally:
            await self._decoder.close()
            await asyncio.to_thread(self._encoders.close)

    async def _wait_while(self, count: Callable[[], int], seconds: float) -> None:
        until = time.monotonic() + seconds
        while count() and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.05)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, it doesn't raise the signal again: the end was in good order."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def config(app: FastAPI, limits: Limits, transport: Transport = PLAIN) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHTTPProtocol,
        ws=BoundedWebSocketProtocol,
        ws_max_size=limits.body_bytes,
        ws_ping_timeout=limits.seconds,  # who plays what was sent may not read for a long time
        ws_per_message_deflate=False,  # audio doesn't get smaller, and everybody waits meanwhile
        lifespan="off",
        access_log=False,
        log_level="critical",  # requests are logged by the application, with their ids
        backlog=BACKLOG,
        timeout_graceful_shutdown=STRAGGLER_SECONDS,
        ssl_certfile=transport.certfile or None,
        ssl_keyfile=transport.keyfile or None,
        proxy_headers=bool(transport.trusted_proxies),
        forwarded_allow_ips=transport.trusted_proxies,
    )


def _address(listener: socket.socket, tls: bool) -> str:
    scheme = "https" if tls else "http"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
