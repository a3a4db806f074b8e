"""Ports besides that of the HTTP API: of metrics, of Wyoming and of the original's gRPC runtime.

The last two need packages that are optional: their rooms are imported when a port is set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module

from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.telemetry.metrics_port import answer_scrapers
from cosyserve.gateway.transport.listening import listen
from cosyserve.settings import Settings

WYOMING = "cosyserve.gateway.wyoming.server"
GRPC = "cosyserve.gateway.original.grpc_server"


@dataclass(frozen=True)
class Doors:
    """Ports to open; 0 leaves one closed."""

    metrics: int = 0
    wyoming: int = 0
    legacy: int = 0  # of the original's FastAPI runtime: one more of the HTTP API
    legacy_grpc: int = 0
    legacy_max_conc: int = 4

    @classmethod
    def of(cls, settings: Settings) -> Doors:
        return cls(
            settings.metrics_port,
            settings.wyoming_port,
            settings.legacy_port,
            settings.legacy_grpc_port,
            settings.legacy_max_conc,
        )

    def import_rooms(self) -> None:
        """Fails if a package is missing, which is better known before a model is loaded."""
        for port, room in ((self.wyoming, WYOMING), (self.legacy_grpc, GRPC)):
            if port:
                import_module(room)

    @asynccontextmanager
    async def open(
        self, host: str, context: ConnectionContext, keys: KeyRing
    ) -> AsyncIterator[list[str]]:
        """Serves inside the `async with` -> the addresses."""
        addresses = []
        seconds = context.limits.seconds
        async with AsyncExitStack() as stack:
            if self.metrics:
                listener = listen(host, self.metrics, seconds, "--metrics-port")
                stack.enter_context(listener)
                await stack.enter_async_context(answer_scrapers(context.metrics, listener))
                addresses.append(f"http://{_host(host)}:{self.metrics}/metrics")
            if self.wyoming:
                from cosyserve.gateway.wyoming.server import wyoming_server

                listener = listen(host, self.wyoming, seconds, "--wyoming-port")
                stack.enter_context(listener)
                await stack.enter_async_context(wyoming_server(context, listener))
                addresses.append(f"tcp://{_host(host)}:{self.wyoming} (Wyoming)")
            if self.legacy_grpc:
                from cosyserve.gateway.original.grpc_server import grpc_server

                address = f"{_host(host)}:{self.legacy_grpc}"
                server = grpc_server(context, keys, address, self.legacy_max_conc)
                await stack.enter_async_context(server)
                addresses.append(f"{address} (gRPC)")
            yield addresses


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
