"""Metrics for Prometheus: of finished requests, and the engine's own counts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cosyserve.contracts import Engine
from cosyserve.gateway.telemetry.record import Record

LATENCY = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
DURATION = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
FACTOR = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5, 3.0)


class Metrics:
    def __init__(self, engine: Engine) -> None:
        registry = self._registry = CollectorRegistry()
        registry.register(EngineCounts(engine))
        self._first_audio = Histogram(
            "cosyserve_first_audio_seconds",
            "From the arrival of a request, or of the first text, to the first audio.",
            buckets=LATENCY,
            registry=registry,
        )
        self._seconds = Histogram(
            "cosyserve_request_seconds",
            "Whole duration of requests.",
            ["route", "status"],
            buckets=DURATION,
            registry=registry,
        )
        self._factor = Histogram(
            "cosyserve_real_time_factor",
            "Seconds it took to speak a second.",
            buckets=FACTOR,
            registry=registry,
        )
        self._audio = Counter(
            "cosyserve_audio_seconds", "Seconds of audio sent.", registry=registry
        )
        self._underruns = Counter(
            "cosyserve_underruns",
            "Chunks that came after all audio sent before them would have been played.",
            registry=registry,
        )
        self._refusals = Counter(
            "cosyserve_refusals", "Requests answered with an error.", ["reason"], registry=registry
        )
        self._bytes = Counter("cosyserve_bytes_out", "Bytes of bodies sent.", registry=registry)

        self.connections = Gauge(
            "cosyserve_connections",
            "Connections open now.",
            registry=registry,
        )

    def observe(self, record: Record, route: str, seconds: float) -> None:
        self._seconds.labels(route, str(record.status)).observe(seconds)
        self._bytes.inc(record.bytes_out)
        if record.first_audio is None:
            return
        self._first_audio.observe(record.first_audio)
        self._audio.inc(record.audio_seconds)
        self._underruns.inc(record.underruns)
        if record.speaking_seconds is not None and record.audio_seconds:
            self._factor.observe(record.speaking_seconds / record.audio_seconds)

    def count_refusal(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class EngineCounts(Collector):
    """The engine's own counts, read whenever the metrics are."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Nothing, because registering would otherwise call `collect` on a starting engine."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        gauges = {"ready": float(stats.ready), "waiting": stats.waiting, "running": stats.running}
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"cosyserve_{name}", f"The engine's {name}.", value)
        yield CounterMetricFamily("cosyserve_sessions", "Sessions opened.", stats.sessions)
        yield CounterMetricFamily("cosyserve_tokens", "Speech tokens made.", stats.tokens)
        stages = CounterMetricFamily(
            "cosyserve_stage_seconds", "Seconds spent computing.", labels=["stage"]
        )
        stages.add_metric(["lm"], stats.lm_seconds)
        stages.add_metric(["token2wav"], stats.token2wav_seconds)
        yield stages
