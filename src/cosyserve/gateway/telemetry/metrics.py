"""Metrics for Prometheus: of finished requests, and the engines' own counts.

All of them have the label `model`: the one that was asked to speak, or all of the server's where
none was. Labels have few values: a route is that of the application, a reason one of our codes,
whatever clients ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
MODEL = ("model",)


class Metrics(Collector):
    def __init__(self, engines: Sequence[Engine]) -> None:
        """`engines`: one of each model, started."""
        names = [engine.model.name for engine in engines]
        self._models = ",".join(names)
        registry = self._registry = CollectorRegistry()
        registry.register(EngineCounts(engines))
        self._first_audio = Histogram(
            "cosyserve_first_audio_seconds",
            "From the arrival of a request, or of the first text, to the first audio.",
            MODEL,
            buckets=LATENCY,
            registry=registry,
        )
        self._first_audible = Histogram(
            "cosyserve_first_audible_seconds",
            "The same, to the first audio that is no silence, for a listener who plays at once.",
            MODEL,
            buckets=LATENCY,
            registry=registry,
        )
        self._queue = Histogram(
            "cosyserve_queue_seconds",
            "What requests waited for a slot once their text was planned.",
            MODEL,
            buckets=QUEUE,
            registry=registry,
        )
        self._seconds = Histogram(
            "cosyserve_request_seconds",
            "Whole duration of requests.",
            ["model", "route", "status"],
            buckets=DURATION,
            registry=registry,
        )
        self._factor = Histogram(
            "cosyserve_real_time_factor",
            "Seconds it took to speak a second.",
            MODEL,
            buckets=FACTOR,
            registry=registry,
        )
        self._audio = Counter(
            "cosyserve_audio_seconds", "Seconds of audio sent.", MODEL, registry=registry
        )
        self._speech = Histogram(
            "cosyserve_speech_seconds",
            "Seconds of audio of each request that was spoken to its end.",
            MODEL,
            buckets=DURATION,
            registry=registry,
        )
        self._silence = Histogram(
            "cosyserve_underrun_seconds",
            "Silence in all of a listener who plays from the first chunk on, by request.",
            MODEL,
            buckets=SILENCE,
            registry=registry,
        )
        self._retries = Counter(
            "cosyserve_speech_retries",
            "Utterances whose speech was drawn once more, because it could not be spoken.",
            MODEL,
            registry=registry,
        )
        self._early = Counter(
            "cosyserve_early_speech",
            "Requests whose speech ended long before its text, however often it was drawn.",
            MODEL,
            registry=registry,
        )
        self._aborts = Counter(
            "cosyserve_aborts",
            "Requests whose speech was being made and did not come to its end.",
            ["model", "reason"],
            registry=registry,
        )
        self._underruns = Counter(
            "cosyserve_underruns",
            "Chunks that came after all audio sent before them would have been played.",
            MODEL,
            registry=registry,
        )
        self._refusals = Counter(
            "cosyserve_refusals",
            "Requests answered with an error.",
            ["model", "reason"],
            registry=registry,
        )
        self.ignored_fields = Counter(
            "cosyserve_ignored_fields",
            "Fields of requests that mean nothing here; those of unheard-of names are 'other'.",
            ["field"],
            registry=registry,
        )
        self._bytes = Counter(
            "cosyserve_bytes_out", "Bytes of bodies sent.", MODEL, registry=registry
        )
        self.connections = Gauge(
            "cosyserve_connections",
            "Connections open now.",
            registry=registry,
        )

        of_speech = (
            *(self._first_audio, self._first_audible, self._queue, self._factor, self._audio),
            *(self._speech, self._silence, self._retries, self._early, self._underruns),
        )
        for metric in of_speech:
            for name in names:
                metric.labels(name)  # so that it begins at zero

    def observe(self, record: Record, route: str, seconds: float) -> None:
        model = record.model or self._models
        self._seconds.labels(model, route, str(record.status)).observe(seconds)
        self._bytes.labels(model).inc(record.bytes_out)
        if record.abort:
            self._aborts.labels(model, record.abort).inc()
        if record.first_audio is None:
            return
        self._first_audio.labels(model).observe(record.first_audio)
        if record.first_audible is not None:
            self._first_audible.labels(model).observe(record.first_audible)
        self._audio.labels(model).inc(record.audio_seconds)
        self._underruns.labels(model).inc(record.underruns)
        self._retries.labels(model).inc(record.retries)
        self._early.labels(model).inc(record.finish == "early")
        self._silence.labels(model).observe(record.underrun_seconds)
        if record.timeline:
            waited = record.timeline.admitted - record.timeline.planned
            self._queue.labels(model).observe(waited)
        if record.finish and not (record.abort or record.error):
            self._speech.labels(model).observe(record.audio_seconds)
        if record.speaking_seconds is not None and record.audio_seconds:
            factor = record.speaking_seconds / record.audio_seconds
            self._factor.labels(model).observe(factor)

    def count_refusal(self, reason: str, model: str = "") -> None:
        self._refusals.labels(model or self._models, reason).inc()

    def text(self) -> bytes:
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        return with_aliases(self._with_model())

    def _with_model(self) -> Iterator[Metric]:
        model = {"model": self._models}
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels=model | sample.labels) for sample in family.samples
            ]
            yield family


class EngineCounts(Collector):
    """The engines' own counts, read whenever the metrics are."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines

    def describe(self) -> Iterator[Metric]:
        """Nothing, because registering would otherwise call `collect` on a starting engine."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        each = {engine.model.name: engine.stats() for engine in self._engines}
        for name in ("ready", "waiting", "running", "slots"):
            gauge = GaugeMetricFamily(f"cosyserve_{name}", f"The engine's {name}.", labels=MODEL)
            for model, stats in each.items():
                # The slots of a Triton server are not known.
                if name != "slots" or stats.slots or not stats.ready:
                    gauge.add_metric([model], float(getattr(stats, name)))
            yield gauge
        for name, meaning, count in (
            ("sessions", "Sessions opened.", "sessions"),
            ("tokens", "Speech tokens made.", "tokens"),
            ("worker_restarts", "Workers that died.", "restarts"),
        ):
            counter = CounterMetricFamily(f"cosyserve_{name}", meaning, labels=MODEL)
            for model, stats in each.items():
                counter.add_metric([model], getattr(stats, count))
            yield counter
        stages = CounterMetricFamily(
            "cosyserve_stage_seconds", "Seconds spent computing.", labels=["model", "stage"]
        )
        memory = GaugeMetricFamily(
            *("cosyserve_gpu_memory_bytes", "Memory that workers hold on GPUs."),
            labels=["model", "device"],
        )
        for model, stats in each.items():
            stages.add_metric([model, "lm"], stats.lm_seconds)
            stages.add_metric([model, "token2wav"], stats.token2wav_seconds)
            for device, held in stats.gpu_memory.items():
                memory.add_metric([model, device], held)
        yield stages
        yield memory
