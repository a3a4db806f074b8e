"""Models, health, metrics, ids and log lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cosyserve.errors import WorkerError
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(v for key, v in sample.labels.items() if key != "model")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_gateway_costs_no_torch_and_no_tracing_that_is_off() -> None:
    code = (
        "import sys, cosyserve.gateway.app, cosyserve.gateway.serve, cosyserve.voices.store;"
        "sys.exit(bool({'torch', 'opentelemetry.sdk'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_models(server: Running) -> None:
    (model,) = server.http.get("/v1/models").json()["data"]
    assert {"id": "sine", "object": "model", "owned_by": "cosyserve"}.items() <= model.items()
    assert server.http.get("/v1/models/tts-1").json()["id"] == "sine"
    missing = server.http.get("/v1/models/org/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_a_test_model_says_so(server: Running) -> None:
    server.behave(speech=False)
    assert "test model: not speech" in server.http.get("/v1/models").text


def test_health_and_readiness(server: Running) -> None:
    assert server.http.get("/ready").status_code == 200
    server.behave(ready=False)
    assert server.http.get("/ready").status_code == 503
    assert server.http.get("/health").status_code == 200


def test_the_docs_page_needs_nothing_from_elsewhere(server: Running) -> None:
    page = server.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert 'fetch("openapi.json")' in page.text
    assert "//" not in page.text.replace("http://www.w3.org", "")  # no other host
    paths = server.http.get("/openapi.json").json()["paths"]
    assert "/v1/audio/speech" in paths


def test_metrics_count_what_happened() -> None:
    with serving(SineEngine(delay=0.05, chunk_tokens=1)) as server:
        sent = len(server.say(response_format="pcm").content)
        server.say(model="unknown")
        server.behave(error=WorkerError("died"))
        server.say()
        server.wait_until_idle()
        seen = samples(server.http.get("/metrics").text)
    assert seen["cosyserve_first_audio_seconds_count",] == 1
    assert seen["cosyserve_real_time_factor_sum",] > 0.9
    assert seen["cosyserve_underruns_total",] == 3
    assert seen["cosyserve_audio_seconds_total",] == pytest.approx(0.16)
    assert seen["cosyserve_request_seconds_count", "/v1/audio/speech", "200"] == 1
    assert seen["cosyserve_request_seconds_count", "/v1/audio/speech", "404"] == 1
    assert seen["cosyserve_refusals_total", "model_not_found"] == 1
    assert seen["cosyserve_refusals_total", "engine_unavailable"] == 1
    assert seen["cosyserve_bytes_out_total",] > sent
    assert seen["cosyserve_stage_seconds_total", "lm"] == 1.5
    assert seen["cosyserve_ready",] == 1
    assert {("cosyserve_waiting",), ("cosyserve_running",), ("cosyserve_tokens_total",)} <= set(
        seen
    )


def test_a_sane_id_of_the_client_is_kept(server: Running) -> None:
    def answered(given: str) -> str:
        headers = {"x-request-id": given.encode()}
        return server.http.get("/health", headers=headers).headers["x-request-id"]

    assert answered("a-1.b_C") == "a-1.b_C"
    assert answered("x" * 128) == "x" * 128
    for odd in ("", "x" * 129, "a b", "a\tb", "ü"):
        assert answered(odd).startswith("req_")
    assert answered("") != answered("")


def test_one_line_a_request_without_its_text(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    answer = server.say(input="My secret.", response_format="pcm")
    refused = server.say(input="My secret.", speed=9)
    server.wait_until_idle()
    spoken, failed = (json.loads(record.getMessage()) for record in caplog.records)
    assert spoken["request_id"] == answer.headers["x-request-id"]
    assert (spoken["method"], spoken["path"], spoken["status"]) == ("POST", "/v1/audio/speech", 200)
    assert (spoken["characters"], spoken["audio_s"], spoken["finish"]) == (10, 1.6, "stop")
    assert spoken["first_audio_ms"] > 0
    assert list(spoken["stages_ms"]) == ["plan", "slot", "tokens", "chunk", "rest"]
    assert sum(spoken["stages_ms"].values()) == pytest.approx(spoken["first_audio_ms"], abs=0.3)
    assert failed["request_id"] == refused.headers["x-request-id"]
    assert (failed["status"], failed["error"]) == (400, "invalid_value")
    assert "secret" not in caplog.text


def test_an_unexpected_error_is_logged_with_its_id(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    server.behave(error=RuntimeError("what only the log may know"))
    answer = server.say()
    server.wait_until_idle()
    logged = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert answer.headers["x-request-id"] in logged.getMessage()
    assert "what only the log may know" in caplog.text
