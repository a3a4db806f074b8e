"""The HTTP application: routes, and what surrounds every one of them. Knows no socket."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from cosyserve.contracts import Engine
from cosyserve.gateway import docs, speech, status, voices
from cosyserve.gateway.decoding import Decoder
from cosyserve.gateway.errors import ErrorEnvelope, pass_on
from cosyserve.gateway.interpreter import Interpreter
from cosyserve.gateway.keys import Keys
from cosyserve.gateway.known_voices import KnownVoices
from cosyserve.gateway.limits import Gate, Guard, Limits
from cosyserve.gateway.metrics import Metrics
from cosyserve.gateway.references import References
from cosyserve.gateway.trace import Ledger, Trace
from cosyserve.gateway.websocket import connection
from cosyserve.gateway.websocket.connections import Connections
from cosyserve.gateway.websocket.utterance import Stage
from cosyserve.version import __version__
from cosyserve.voices.store import VoiceStore


def create_app(
    engine: Engine, store: VoiceStore, limits: Limits, keys: Sequence[str] = ()
) -> FastAPI:
    """`app.state.gate` counts the requests inside; closing it refuses new ones.
    `app.state.connections` has the WebSockets, to be sent away in the same manner.
    `app.state.decoder` has a child process, which is to be closed."""
    gate, connections = (
        Gate(limits.requests, limits.requests_per_key),
        Connections(limits.connections),
    )
    metrics = Metrics(engine)
    ledger = Ledger(metrics)
    known, decoder = KnownVoices(engine, store), Decoder()
    references = References(engine, decoder, limits.voice_cache_bytes)
    interpreter = Interpreter(engine, known, references)
    stage = Stage(engine, interpreter, limits, gate, ledger)
    app = FastAPI(
        title="cosyserve",
        version=__version__,
        middleware=[
            Middleware(Trace, ledger=ledger),
            Middleware(Keys, keys=keys),
            Middleware(Guard, limits=limits, gate=gate),
        ],
        exception_handlers={HTTPException: pass_on, RequestValidationError: pass_on},
        responses={"default": {"model": ErrorEnvelope, "description": "Any error."}},
        docs_url=None,
        redoc_url=None,
    )
    app.state.gate, app.state.connections, app.state.decoder = gate, connections, decoder
    app.include_router(speech.routes(engine, interpreter, limits))
    app.include_router(connection.routes(stage, connections, metrics))
    app.include_router(voices.routes(engine, known, decoder))
    app.include_router(status.routes(engine, metrics, gate))
    app.include_router(docs.routes())
    return app
