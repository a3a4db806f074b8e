"""The HTTP application: the routes, and the middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from cosyserve.contracts import Engine
from cosyserve.gateway import status
from cosyserve.gateway.connection.connections import Connections
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.dialects import (
    cartesia,
    dashscope,
    dashscope_voices,
    deepgram,
    elevenlabs,
    omni,
)
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.errors import ErrorEnvelope, reraise
from cosyserve.gateway.keys import KeyRing, Keys
from cosyserve.gateway.limits import Gate, Guard, Limits
from cosyserve.gateway.models import Models
from cosyserve.gateway.original import http as original
from cosyserve.gateway.original import kserve
from cosyserve.gateway.page import routes as page
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.rates import Rates
from cosyserve.gateway.realtime import connection as realtime
from cosyserve.gateway.speech import batch
from cosyserve.gateway.speech import outcomes as past_speech
from cosyserve.gateway.speech import routes as speech
from cosyserve.gateway.speech.interpreter import Interpreter
from cosyserve.gateway.speech.outcomes import Outcomes
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.trace import Ledger, Trace
from cosyserve.gateway.voices import consent_routes
from cosyserve.gateway.voices import routes as voices
from cosyserve.gateway.voices.consents import Consents
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.voices.enrolment import Enrolment
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.gateway.websocket import connection
from cosyserve.version import __version__
from cosyserve.voices.memory.learned import LearnedVoices
from cosyserve.voices.store import VoiceStore

if TYPE_CHECKING:
    from cosyserve.gateway.telemetry.spans import Spans


def create_app(
    engine: Engine,
    store: VoiceStore,
    limits: Limits,
    keys: KeyRing | None = None,
    default_voice: str = "",
    policy: Policy | None = None,
    spans: Spans | None = None,
    legacy: bool = False,
) -> FastAPI:
    """The application, with what its server must close in `app.state`: `gate` refuses new
    requests once it is closed, `connections` has the open WebSockets, `decoder` and `encoders`
    child processes. With `legacy` it also answers what the original's FastAPI runtime does."""
    policy, models, keys = policy or Policy(), Models.of(engine), keys or KeyRing()
    gate = Gate(limits.requests, limits.requests_per_key, keys)
    rates = Rates(limits.requests_per_minute, limits.characters_per_minute)
    connections = Connections(limits.connections)
    metrics = Metrics(models.engines)
    ledger = Ledger(metrics, spans)
    known_voices = KnownVoices(models, store, default_voice, policy.voice_aliases)
    decoder, encoders = Decoder(), Encoders()
    enrolment = Enrolment(decoder)
    learned_voices = LearnedVoices(limits.voice_cache_bytes, policy.require_consent)
    consents = Consents(store.consents)
    interpreter = Interpreter(
        *(models, known_voices, learned_voices, enrolment, consents, metrics, policy),
        max_recording_bytes=limits.body_bytes,
    )
    context = ConnectionContext(
        *(models, interpreter, limits, gate, rates, ledger, metrics, connections, known_voices),
        encoders,
    )
    app = FastAPI(
        title="cosyserve",
        version=__version__,
        middleware=[
            Middleware(Trace, ledger=ledger),
            Middleware(Keys, keys=keys),
            Middleware(Guard, limits=limits, gate=gate),
        ],
        exception_handlers={HTTPException: reraise, RequestValidationError: reraise},
        responses={"default": {"model": ErrorEnvelope, "description": "Any error."}},
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    app.state.gate = gate
    app.state.connections = connections
    app.state.decoder = decoder
    app.state.encoders = encoders
    # Routers are asked in this order. What is asked most goes first; the id of a past stream may be
    # any word, so that its route goes behind those with words of their own.
    outcomes = Outcomes()
    app.include_router(speech.routes(interpreter, limits, rates, outcomes, encoders))
    app.include_router(connection.routes(context, {omni.FIRST: omni.OmniConnection}))
    app.include_router(batch.routes(interpreter, limits, gate, rates, ledger, encoders))
    app.include_router(past_speech.routes(outcomes))
    app.include_router(realtime.routes(context))
    for dialect in (dashscope, elevenlabs, cartesia, deepgram):
        app.include_router(dialect.routes(context))
    app.include_router(dashscope_voices.routes(context, enrolment, consents))
    app.include_router(voices.routes(models, known_voices, enrolment, consents, policy))
    app.include_router(consent_routes.routes(consents, enrolment))
    app.include_router(
        kserve.routes(models, known_voices, learned_voices, enrolment, limits, rates, policy)
    )
    if legacy:
        app.include_router(original.routes(context))
    app.include_router(status.routes(models, metrics, gate, policy))
    app.include_router(page.routes())
    return app
