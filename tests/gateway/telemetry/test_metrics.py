"""What is counted of requests, under which names and labels."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from cosyserve.contracts import EngineStats
from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError
from cosyserve.gateway.telemetry.metrics import Metrics
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import talking
from tests.gateway.test_status import samples


@pytest.fixture
def fresh() -> Iterator[Running]:
    """A server that nobody has asked anything yet."""
    with serving() as running:
        yield running


def counts(server: Running) -> dict[tuple[str, ...], float]:
    server.wait_until_idle()
    return samples(server.http.get("/metrics").text)


def aborts(server: Running) -> dict[str, float]:
    found = counts(server).items()
    return {key[1]: value for key, value in found if key[0] == "cosyserve_aborts_total"}


def test_speech_that_comes_to_its_end(fresh: Running) -> None:
    fresh.behave(delay=0.06, chunk_tokens=1)
    fresh.say(response_format="pcm")
    metrics = counts(fresh)
    assert metrics["cosyserve_speech_seconds_count",] == 1
    assert metrics["cosyserve_speech_seconds_sum",] == pytest.approx(0.16)
    assert metrics["cosyserve_queue_seconds_sum",] == pytest.approx(0.02)
    assert metrics["cosyserve_underruns_total",] == 3
    assert 3 * 0.02 <= metrics["cosyserve_underrun_seconds_sum",] < 1
    assert metrics["cosyserve_underrun_seconds_bucket", "0.0"] == 0
    assert aborts(fresh) == {}


def test_a_stream_in_time_has_no_silence(fresh: Running) -> None:
    fresh.say(response_format="pcm")  # a codec may still have to be loaded
    metrics = counts(fresh)
    assert metrics["cosyserve_underrun_seconds_bucket", "0.0"] == 1
    assert metrics["vllm_omni:audio_continuity_ok_total", "sine", "100"] == 1


def test_speech_that_ended_too_soon_is_counted(fresh: Running) -> None:
    for finish, retries in (("stop", 1), ("early", 1), ("early", 0), ("length", 2), ("stop", 0)):
        fresh.behave(finish=finish, retries=retries)
        fresh.say()
    metrics = counts(fresh)
    assert metrics["cosyserve_speech_retries_total",] == 4
    assert metrics["cosyserve_early_speech_total",] == 2
    assert aborts(fresh) == {}


def test_aborts_have_a_reason_and_refusals_are_none(fresh: Running) -> None:
    for error, place in (
        (WorkerError("died"), 0),
        (CosyError("failed"), 2),
        (OverloadError("full", 1.0), 0),  # nothing was being made
        (InputError("no words"), 0),
    ):
        fresh.behave(error=error, error_at=place)
        try:
            fresh.say(response_format="pcm")
        except httpx.RemoteProtocolError:
            assert place  # a stream that has begun is cut
    fresh.behave(held=True)
    with fresh.http.stream("POST", SPEECH, json={"model": "sine", "input": "Hi."}) as answer:
        next(answer.iter_raw())
    fresh.wait_until_idle()
    fresh.behave(held=True)
    with talking(fresh.url) as talk:
        talk.start()
        talk.text("Hello.")
        talk.hear("started")
        talk.send("cancel")
        talk.hear()
    assert aborts(fresh) == {
        "engine_unavailable": 1,
        "engine_failed": 1,
        "client_left": 1,
        "cancelled": 1,
    }
    metrics = counts(fresh)
    assert metrics["cosyserve_speech_seconds_count",] == 0
    reasons = ("engine_dead", "error", "closed", "cancelled")
    assert [metrics["vllm_omni:speech_stream_aborted_total", "sine", r] for r in reasons] == [1] * 4


def test_vllm_omnis_names_say_the_same(fresh: Running) -> None:
    fresh.behave(delay=0.06, chunk_tokens=1)
    for _ in range(3):
        fresh.say()
    metrics = counts(fresh)
    for ours, theirs in (
        ("first_audio_seconds", "audio_ttfp_s"),
        ("speech_seconds", "audio_duration_s"),
        ("underrun_seconds", "audio_underrun_s"),
    ):
        for suffix in ("_sum", "_count"):
            same = metrics[f"vllm_omni:{theirs}{suffix}", "sine"]
            assert same == metrics[f"cosyserve_{ours}{suffix}",] > 0
    assert metrics["vllm_omni:speech_stream_completed_total", "sine"] == 3
    assert metrics["vllm_omni:num_requests_running", "sine"] == 0
    assert metrics["vllm_omni:num_requests_waiting", "sine"] == 0


def test_every_series_names_its_model_and_strangers_make_no_series(fresh: Running) -> None:
    def ask(text: str) -> None:
        fresh.say(model=text)
        fresh.say(voice=text)
        fresh.http.get(f"/{text}")
        fresh.http.get(f"/v1/models/{text}", headers={"traceparent": text, "x-request-id": text})
        fresh.http.request(text[:8].upper(), f"/{text}")
        fresh.http.delete(f"/v1/audio/voices/{text}")

    def series() -> list[str]:
        lines = fresh.http.get("/metrics").text.splitlines()
        return sorted(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))

    ask("one")
    fresh.http.get("/metrics")  # it counts itself
    before = series()
    for _ in range(5):
        ask(f"stranger-{uuid.uuid4().hex}")
    assert series() == before
    assert all('model="sine"' in line or 'model_name="sine"' in line for line in before)


def test_the_engines_slots_memory_and_restarts() -> None:
    class Busy(SineEngine):
        def stats(self) -> EngineStats:
            one = EngineStats(True, 1, 2, slots=4, restarts=1, gpu_memory={"cuda:0": 5})
            other = EngineStats(False, 0, 1, slots=2, gpu_memory={"cuda:0": 2, "cuda:1": 3})
            return one + other

    metrics = samples(Metrics([Busy()]).text().decode())
    assert (metrics["cosyserve_running",], metrics["cosyserve_slots",]) == (3, 6)
    assert (metrics["cosyserve_ready",], metrics["cosyserve_waiting",]) == (1, 1)
    assert metrics["cosyserve_worker_restarts_total",] == 1
    assert metrics["cosyserve_gpu_memory_bytes", "cuda:0"] == 7
    assert metrics["cosyserve_gpu_memory_bytes", "cuda:1"] == 3


def test_slots_that_nobody_knows_are_no_metric() -> None:
    class Triton(SineEngine):
        def stats(self) -> EngineStats:
            return EngineStats(ready=True, waiting=0, running=0)

    assert ("cosyserve_slots",) not in samples(Metrics([Triton()]).text().decode())
