"""A real server on a free port of this machine, in a thread, around a sine engine."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import uvicorn
import uvloop

from cosyserve.gateway.app import create_app
from cosyserve.gateway.key_file import KeyFile
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.serve import config
from cosyserve.gateway.transport.listening import Transport, listen
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.sine_engine import SineEngine
from tests.waiting import wait_until

if TYPE_CHECKING:
    from cosyserve.gateway.telemetry.spans import Spans

SPEECH = "/v1/audio/speech"
Entered = TypeVar("Entered")


@dataclass
class Running:
    engine: SineEngine
    port: int
    http: httpx.Client
    app: Any
    loop: asyncio.AbstractEventLoop
    sockets: Collection[object]  # that are open
    folder: Path  # of the stored voices

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def behave(self, **behaviour: Any) -> None:
        """Makes the engine a new one."""
        vars(self.engine).update(vars(SineEngine(**behaviour)))

    def say(self, **fields: Any) -> httpx.Response:
        return self.http.post(SPEECH, json={"model": "sine", "input": "Hello.", **fields})

    def wait_until_idle(self) -> None:
        wait_until(  # utterances, too
            lambda: (
                not (self.engine.open_sessions or self.app.state.gate.inside or self.open_encoders)
            ),
            "sessions are open",
        )

    @property
    def open_encoders(self) -> int:
        return sum(process.encoders for process in self.app.state.encoders.processes)


@contextmanager
def serving(
    engine: SineEngine | None = None,
    settings: Settings | None = None,
    keys: Sequence[str] = (),
    store: str | None = None,
    default_voice: str = "",
    spans: Spans | None = None,
    legacy: bool = False,
    others: Sequence[SineEngine] = (),
) -> Iterator[Running]:
    """`others`: engines of further models."""
    engine = engine or SineEngine()
    settings = settings or Settings()
    limits, policy = Limits.of(settings), Policy.of(settings)
    transport = Transport.of(settings)
    key_file = KeyFile(settings.api_keys_file) if settings.api_keys_file else None
    ring = KeyRing(keys, key_file)
    with (
        tempfile.TemporaryDirectory() as folder,
        listen("127.0.0.1", 0, limits.seconds) as listener,
    ):
        app = create_app(
            *(
                Models([engine, *others]),
                open_store(store or folder),
                limits,
                ring,
                default_voice,
                policy,
                spans,
            ),
            legacy=legacy,
        )
        server = uvicorn.Server(config(app, limits, transport))

        loops: list[asyncio.AbstractEventLoop] = []

        async def run() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve(sockets=[listener])
            await app.state.decoder.close()
            app.state.encoders.close()

        thread = threading.Thread(target=lambda: uvloop.run(run()))
        thread.start()
        port = listener.getsockname()[1]
        try:
            scheme, verify = "http", True
            if transport.certfile:
                scheme, verify = "https", ssl.create_default_context(cafile=transport.certfile)
            base = f"{scheme}://127.0.0.1:{port}"
            with httpx.Client(base_url=base, timeout=10, verify=verify) as client:
                while not server.started:
                    time.sleep(0.002)
                sockets = server.server_state.connections
                yield Running(engine, port, client, app, loops[0], sockets, Path(folder))
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def opened(running: Running, door: AbstractAsyncContextManager[Entered]) -> Iterator[Entered]:
    """One more port of a running server."""
    entering = asyncio.run_coroutine_threadsafe(door.__aenter__(), running.loop)  # type: ignore[arg-type]
    yield entering.result(20)
    leaving = asyncio.run_coroutine_threadsafe(door.__aexit__(None, None, None), running.loop)  # type: ignore[arg-type]
    leaving.result(20)
