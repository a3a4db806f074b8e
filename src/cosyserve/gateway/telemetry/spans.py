"""Spans of OpenTelemetry: one a request for speech, with the stages that it passed inside.

A span is made of the request's record when it has ended, so that a request without tracing pays
nothing for it. It says how much was asked for and how long it took, never what was said. Whoever
imports this module needs the extra `otel`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from cosyserve.errors import InputError
from cosyserve.gateway.telemetry.record import Record
from cosyserve.version import __version__

OPERATION = "text_to_speech"
CLOSE_SECONDS = 5.0  # for the last spans, when the server ends
StageSpan = tuple[str, float, float]  # its name, its first and its last moment


class Spans:
    def __init__(self, exporter: SpanExporter) -> None:
        ours = Resource({"service.name": "cosyserve", "service.version": __version__})
        resource = ours.merge(OTELResourceDetector().detect())  # OTEL_… variables go before
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))  # exports in a thread
        self._tracer = self._provider.get_tracer("cosyserve", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def send(self, record: Record, route: str, ended: float) -> str:
        """Makes the spans of a request that ended at this time -> the id of their trace."""
        to_epoch = time.time_ns() - time.perf_counter_ns()

        def at(moment: float) -> int:
            return to_epoch + int(1e9 * moment)

        span = self._tracer.start_span(
            f"{OPERATION} {record.model}",
            self._propagator.extract({"traceparent": record.traceparent}),
            SpanKind.SERVER,
            _attributes(record, route),
            start_time=at(record.started),
        )
        inside = set_span_in_context(span)
        for name, begin, end in _stages(record):
            stage = self._tracer.start_span(name, inside, start_time=at(begin))
            stage.end(at(end))
        if record.failed:
            span.set_status(StatusCode.ERROR, record.error)
        span.end(at(ended))
        context = span.get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else ""

    def close(self) -> None:
        """Sends what is left; a collector that does not answer has a few seconds."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def open_spans(endpoint: str) -> Spans:
    """Spans that go to a collector, by OTLP over HTTP."""
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InputError(
            f"--otlp-traces-endpoint: {endpoint!r:.200} is no address of a collector: write "
            "http://HOST:4318/v1/traces"
        )
    return Spans(OTLPSpanExporter(endpoint))


def _attributes(record: Record, route: str) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": "cosyserve",
        "gen_ai.request.model": record.model,
        "gen_ai.output.type": "speech",
        "gen_ai.usage.input_tokens": record.text_tokens,
        "gen_ai.usage.output_tokens": record.tokens,
        "http.request.method": record.method,
        "http.route": route,
        "http.response.status_code": record.status,
        "cosyserve.request_id": record.request_id,
        "cosyserve.characters": record.characters,
        "cosyserve.audio_seconds": record.audio_seconds,
        "cosyserve.encode_seconds": record.encode_seconds,
        "cosyserve.underruns": record.underruns,
    }
    if record.finish:
        attributes["gen_ai.response.finish_reasons"] = [record.finish]
    if record.first_audio is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = record.first_audio
    if record.error:
        attributes["error.type"] = record.error
    if record.abort:
        attributes["cosyserve.abort"] = record.abort
    return attributes


def _stages(record: Record) -> Iterator[StageSpan]:
    """Those that were passed: LM and token2wav work at the same time, as long as audio comes."""
    if timeline := record.timeline:
        entered, drawn = record.entered, timeline.drawn
        yield "plan", entered, entered + timeline.planned
        yield "queue", entered + timeline.planned, entered + timeline.admitted
        lm_end = record.last_chunk if drawn is None else entered + drawn
        yield "lm", entered + timeline.admitted, lm_end
        token2wav_end = record.last_chunk if drawn is None else entered + timeline.sent
        yield "token2wav", entered + timeline.first_tokens, token2wav_end
    if record.encode_began is not None:
        yield "encode", record.encode_began, record.encode_ended
