"""The HTTP application: routes, and what surrounds every one of them. Knows no socket."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from cosyserve import __version__
from cosyserve.contracts import Engine
from cosyserve.gateway import speech, status, voices
from cosyserve.gateway.decoding import Decoder
from cosyserve.gateway.errors import ErrorEnvelope, pass_on
from cosyserve.gateway.known_voices import KnownVoices, VoiceStore
from cosyserve.gateway.limits import Gate, Guard, Limits
from cosyserve.gateway.metrics import Metrics
from cosyserve.gateway.trace import Trace


def create_app(engine: Engine, store: VoiceStore, limits: Limits) -> FastAPI:
    """`app.state.gate` counts the requests inside; closing it refuses new ones."""
    gate = Gate(limits.requests)
    metrics = Metrics(engine)
    known, decoder = KnownVoices(engine, store), Decoder()
    app = FastAPI(
        title="cosyserve",
        version=__version__,
        middleware=[
            Middleware(Trace, metrics=metrics),
            Middleware(Guard, limits=limits, gate=gate),
        ],
        exception_handlers={HTTPException: pass_on, RequestValidationError: pass_on},
        responses={"default": {"model": ErrorEnvelope, "description": "Any error."}},
        redoc_url=None,
    )
    app.state.gate = gate
    app.include_router(speech.routes(engine, known, decoder, limits))
    app.include_router(voices.routes(engine, known, decoder))
    app.include_router(status.routes(engine, metrics, gate))
    return app
