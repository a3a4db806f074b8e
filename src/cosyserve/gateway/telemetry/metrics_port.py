"""The metrics on a port of their own, without a key: for scrapers inside a private network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.transport.http import BoundedHTTPProtocol

MAX_SCRAPERS = 16  # at once; more are answered 503


class MetricsServer(uvicorn.Server):
    """Answers nothing but `GET /metrics`."""

    def __init__(self, metrics: Metrics) -> None:
        async def answer(_: Request) -> Response:
            return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

        app = Starlette(routes=[Route("/metrics", answer)])
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedHTTPProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_level="critical",
                limit_concurrency=MAX_SCRAPERS,
                timeout_graceful_shutdown=1,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the server that speaks."""
        yield


@asynccontextmanager
async def answer_scrapers(metrics: Metrics, listener: socket.socket) -> AsyncIterator[None]:
    """Answers on this socket inside the `async with`."""
    server = MetricsServer(metrics)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
