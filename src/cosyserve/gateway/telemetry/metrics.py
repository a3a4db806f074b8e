"""Metrics for Prometheus: of finished requests, and the engine's own counts.

All of them have the label `model`. Labels have few values: a route is that of the application, a
reason one of our codes, whatever clients ask for.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cosyserve.contracts import Engine
from cosyserve.gateway.telemetry.aliases import CONTINUOUS, with_aliases
from cosyserve.gateway.telemetry.record import Record

LATENCY = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
QUEUE = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
SILENCE = (0.0, 0.01, 0.05, CONTINUOUS, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DURATION = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
FACTOR = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5, 3.0)


class Metrics(Collector):
    def __init__(self, engine: Engine, model: str = "") -> None:
        """`model`: the name that every series has; if empty, that of the engine's."""
        self._model = model or engine.model.name
        registry = self._registry = CollectorRegistry()
        registry.register(EngineCounts(engine))
        self._first_audio = Histogram(
            "cosyserve_first_audio_seconds",
            "From the arrival of a request, or of the first text, to the first audio.",
            buckets=LATENCY,
            registry=registry,
        )
        self._first_audible = Histogram(
            "cosyserve_first_audible_seconds",
            "The same, to the first audio that is no silence, for a listener who plays at once.",
            buckets=LATENCY,
            registry=registry,
        )
        self._queue = Histogram(
            "cosyserve_queue_seconds",
            "What requests waited for a slot once their text was planned.",
            buckets=QUEUE,
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
        self._speech = Histogram(
            "cosyserve_speech_seconds",
            "Seconds of audio of each request that was spoken to its end.",
            buckets=DURATION,
            registry=registry,
        )
        self._silence = Histogram(
            "cosyserve_underrun_seconds",
            "Silence in all of a listener who plays from the first chunk on, by request.",
            buckets=SILENCE,
            registry=registry,
        )
        self._retries = Counter(
            "cosyserve_speech_retries",
            "Utterances whose speech was drawn once more, because it could not be spoken.",
            registry=registry,
        )
        self._early = Counter(
            "cosyserve_early_speech",
            "Requests whose speech ended long before its text, however often it was drawn.",
            registry=registry,
        )
        self._aborts = Counter(
            "cosyserve_aborts",
            "Requests whose speech was being made and did not come to its end.",
            ["reason"],
            registry=registry,
        )
        self._underruns = Counter(
            "cosyserve_underruns",
            "Chunks that came after all audio sent before them would have been played.",
            registry=registry,
        )
        self._refusals = Counter(
            "cosyserve_refusals", "Requests answered with an error.", ["reason"], registry=registry
        )
        self.ignored_fields = Counter(
            "cosyserve_ignored_fields",
            "Fields of requests that mean nothing here; those of unheard-of names are 'other'.",
            ["field"],
            registry=registry,
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
        if record.abort:
            self._aborts.labels(record.abort).inc()
        if record.first_audio is None:
            return
        self._first_audio.observe(record.first_audio)
        if record.first_audible is not None:
            self._first_audible.observe(record.first_audible)
        self._audio.inc(record.audio_seconds)
        self._underruns.inc(record.underruns)
        self._retries.inc(record.retries)
        self._early.inc(record.finish == "early")
        self._silence.observe(record.underrun_seconds)
        if record.timeline:
            self._queue.observe(record.timeline.admitted - record.timeline.planned)
        if record.finish and not (record.abort or record.error):
            self._speech.observe(record.audio_seconds)
        if record.speaking_seconds is not None and record.audio_seconds:
            self._factor.observe(record.speaking_seconds / record.audio_seconds)

    def count_refusal(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def text(self) -> bytes:
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        return with_aliases(self._with_model())

    def _with_model(self) -> Iterator[Metric]:
        model = {"model": self._model}
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels=model | sample.labels) for sample in family.samples
            ]
            yield family


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
        if stats.slots or not stats.ready:  # those of a Triton server are not known
            gauges["slots"] = float(stats.slots)
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
        yield CounterMetricFamily("cosyserve_worker_restarts", "Workers that died.", stats.restarts)
        memory = GaugeMetricFamily(
            "cosyserve_gpu_memory_bytes", "Memory that workers hold on GPUs.", labels=["device"]
        )
        for device, held in stats.gpu_memory.items():
            memory.add_metric([device], held)
        yield memory
