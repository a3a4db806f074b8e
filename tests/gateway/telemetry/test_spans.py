"""Spans: one a request for speech, its stages inside, nothing of what was said."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cosyserve.errors import CosyError, InputError
from cosyserve.gateway.telemetry import spans as spans_module
from cosyserve.gateway.telemetry.spans import Spans, open_spans
from cosyserve.server import serve
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import FIRST, LAST
from tests.gateway.talking import talking
from tests.waiting import PATIENCE, wait_until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
SECRET = "Meet me at noon."


class Kept:
    """A server with its spans in memory."""

    def __init__(self, server: Running, spans: Spans, exporter: InMemorySpanExporter) -> None:
        self.server, self._spans, self._exporter = server, spans, exporter

    def take(self) -> tuple[ReadableSpan, dict[str, ReadableSpan]]:
        """The request's span and those of its stages; they are forgotten."""
        self.server.wait_until_idle()
        # Spans end a moment behind the answer.
        wait_until(lambda: any(map(_is_root, self._finished())))
        found = self.forget()
        (root,) = filter(_is_root, found)
        return root, {span.name: span for span in found if span is not root}

    def forget(self) -> tuple[ReadableSpan, ...]:
        """All spans since the last ones."""
        self.server.wait_until_idle()
        found = self._finished()
        self._exporter.clear()
        return found

    def _finished(self) -> tuple[ReadableSpan, ...]:
        self._spans._provider.force_flush()
        return self._exporter.get_finished_spans()


def _is_root(span: ReadableSpan) -> bool:
    return span.kind is SpanKind.SERVER


@pytest.fixture(scope="module")
def server_with_spans() -> Iterator[Kept]:
    exporter = InMemorySpanExporter()
    spans = Spans(exporter)
    with serving(spans=spans) as server:
        yield Kept(server, spans, exporter)
    spans.close()


@pytest.fixture
def kept(server_with_spans: Kept) -> Kept:
    server_with_spans.forget()
    server_with_spans.server.behave()
    return server_with_spans


def seconds(span: ReadableSpan) -> float:
    assert span.start_time
    assert span.end_time
    return (span.end_time - span.start_time) / 1e9


def test_a_request_with_its_stages(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    kept.server.behave(first_delay=0.1, delay=0.02)
    before = time.time_ns()
    body = {"model": "tts-1", "input": SECRET, "response_format": "mp3"}
    kept.server.http.post(SPEECH, json=body, headers=TRACEPARENT)
    root, stages = kept.take()
    assert root
    assert (root.name, root.kind) == ("text_to_speech sine", SpanKind.SERVER)
    assert before <= root.start_time <= root.end_time <= time.time_ns()
    assert root.parent
    assert f"{root.parent.span_id:016x}" == PARENT
    assert {f"{s.context.trace_id:032x}" for s in (root, *stages.values())} == {TRACE}
    assert all(stage.parent == root.context for stage in stages.values())
    assert list(stages) == ["plan", "queue", "lm", "token2wav", "encode"]
    assert seconds(stages["plan"]) == pytest.approx(FIRST.planned, abs=1e-4)
    assert seconds(stages["queue"]) == pytest.approx(FIRST.admitted - FIRST.planned, abs=1e-4)
    assert seconds(stages["lm"]) == pytest.approx(LAST.drawn - LAST.admitted, abs=1e-4)
    assert seconds(stages["token2wav"]) == pytest.approx(LAST.sent - LAST.first_tokens, abs=1e-4)
    for earlier, later in pairwise(stages[name] for name in ("plan", "queue", "lm")):
        assert abs(earlier.end_time - later.start_time) < 1e6
    assert all(root.start_time <= stage.start_time for stage in stages.values())
    assert all(stage.end_time <= root.end_time for stage in stages.values())
    attributes = dict(root.attributes or {})
    assert attributes["gen_ai.operation.name"] == "text_to_speech"
    assert attributes["gen_ai.request.model"] == "sine"
    assert attributes["gen_ai.output.type"] == "speech"
    assert attributes["gen_ai.usage.input_tokens"] == 7
    assert attributes["gen_ai.usage.output_tokens"] == 40
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert 0.1 < attributes["gen_ai.response.time_to_first_chunk"] < PATIENCE
    assert attributes["http.route"] == SPEECH
    assert attributes["http.response.status_code"] == 200
    assert attributes["cosyserve.characters"] == len(SECRET)
    assert root.status.status_code is StatusCode.UNSET
    wait_until(lambda: f'"trace_id": "{TRACE}"' in caplog.text)  # it is written behind the answer
    everything = "".join(span.to_json() for span in (root, *stages.values())) + caplog.text
    assert not [word for word in SECRET.split() if f"{word} " in everything]


def test_items_of_a_batch_are_of_the_clients_trace(kept: Kept) -> None:
    items = {"items": [{"input": "Hi."}]}
    kept.server.http.post(f"{SPEECH}/batch", json=items, headers=TRACEPARENT)
    root, _ = kept.take()
    assert root
    assert root.parent
    assert f"{root.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("header", [{}, {"traceparent": "nonsense"}, {"traceparent": "00-0-0-01"}])
def test_without_a_sane_parent_a_trace_begins(kept: Kept, header: dict[str, str]) -> None:
    kept.server.http.post(SPEECH, json={"model": "sine", "input": "Hi."}, headers=header)
    root, stages = kept.take()
    assert root
    assert root.parent is None
    assert len(stages) == 5


def test_who_samples_nothing_gets_nothing(kept: Kept) -> None:
    unsampled = {"traceparent": TRACEPARENT["traceparent"].removesuffix("01") + "00"}
    kept.server.http.post(SPEECH, json={"model": "sine", "input": "Hi."}, headers=unsampled)
    assert kept.forget() == ()


def test_an_utterance_is_a_request_in_the_connections_trace(kept: Kept) -> None:
    with talking(kept.server.url, additional_headers=TRACEPARENT) as talk:
        for _ in range(2):
            talk.say()
            root, stages = kept.take()
            assert root
            assert f"{root.context.trace_id:032x}" == TRACE
            assert len(stages) == 5


def test_errors_have_their_code_and_never_their_message(kept: Kept) -> None:
    kept.server.behave(error=CosyError(f"can't say {SECRET}"))
    kept.server.say()
    root, stages = kept.take()
    assert root
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "engine_failed")
    assert dict(root.attributes or {})["error.type"] == "engine_failed"
    assert stages == {}
    assert SECRET not in root.to_json()
    kept.server.behave(error=InputError("nothing to say"))
    kept.server.say()
    root, _ = kept.take()
    assert root
    assert root.status.status_code is StatusCode.UNSET  # the client's fault is none of ours
    assert dict(root.attributes or {})["error.type"] == "invalid_input"


def test_a_client_that_leaves_has_the_stages_that_were_passed(kept: Kept) -> None:
    kept.server.behave(held=True)
    body = {"model": "sine", "input": "Hello.", "response_format": "pcm"}
    with kept.server.http.stream("POST", SPEECH, json=body) as answer:
        next(answer.iter_raw())
    root, stages = kept.take()
    assert root
    assert dict(root.attributes or {})["cosyserve.abort"] == "client_left"
    assert list(stages) == ["plan", "queue", "lm", "token2wav", "encode"]


def test_what_is_no_speech_is_no_span(kept: Kept) -> None:
    kept.server.http.get("/v1/models", headers=TRACEPARENT)
    kept.server.http.get("/metrics", headers=TRACEPARENT)
    assert kept.forget() == ()


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://"])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(InputError, match=r"--otlp-traces-endpoint: .*http://HOST:4318/v1/traces"):
        serve(Settings(otlp_traces_endpoint=endpoint))


def test_tracing_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cosyserve.gateway.telemetry.spans", None)
    with pytest.raises(InputError, match=r"pip install 'cosyserve\[otel\]'"):
        serve(Settings(otlp_traces_endpoint="http://localhost:4318/v1/traces"))


class Collector(HTTPServer):
    """Takes spans by OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exports)
        self.requests: list[ExportTraceServiceRequest] = []


class Exports(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.headers["content-type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_spans_arrive_at_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            spans = open_spans(f"http://127.0.0.1:{collector.server_port}/v1/traces")
            with serving(spans=spans) as server:
                body = {"model": "sine", "input": SECRET}
                server.http.post(SPEECH, json=body, headers=TRACEPARENT)
                server.wait_until_idle()
            spans.close()
        finally:
            collector.shutdown()
            thread.join()
    (export,) = collector.requests
    (resource,) = export.resource_spans
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about["service.name"] == "cosyserve"
    assert about["deployment.environment"] == "test"
    (scope,) = resource.scope_spans
    assert {span.trace_id.hex() for span in scope.spans} == {TRACE}
    names = [span.name for span in scope.spans]
    assert names == ["plan", "queue", "lm", "token2wav", "encode", "text_to_speech sine"]
    assert SECRET.encode() not in export.SerializeToString()


def test_a_collector_that_is_gone_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "CLOSE_SECONDS", 0.2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1")  # for all its tries together
    spans = open_spans("http://127.0.0.1:9/v1/traces")
    with serving(spans=spans) as server:
        assert server.say().status_code == 200
        server.wait_until_idle()
    began = time.monotonic()
    spans.close()
    assert time.monotonic() - began < PATIENCE
