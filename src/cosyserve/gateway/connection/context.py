"""The parts of the gateway that connections and their utterances use."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.contracts import Engine
from cosyserve.gateway.connection.connections import Connections
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.limits import Gate, Limits
from cosyserve.gateway.rates import Rates
from cosyserve.gateway.speech.interpreter import Interpreter
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.trace import Ledger
from cosyserve.gateway.voices.known import KnownVoices


@dataclass(frozen=True)
class ConnectionContext:
    engine: Engine
    interpreter: Interpreter
    limits: Limits
    gate: Gate
    rates: Rates
    ledger: Ledger
    metrics: Metrics
    connections: Connections
    voices: KnownVoices
    encoders: Encoders
