"""Our metrics under the names that vLLM-Omni has for them, where they mean exactly the same.

They are written from the same counts whenever the metrics are read: nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric

PREFIX = "vllm_omni:"
SAME = {
    "cosyserve_first_audio_seconds": "audio_ttfp_s",
    "cosyserve_speech_seconds": "audio_duration_s",
    "cosyserve_underrun_seconds": "audio_underrun_s",
    "cosyserve_running": "num_requests_running",
    "cosyserve_waiting": "num_requests_waiting",
}
CONTINUOUS = 0.1  # seconds of silence at most; a bucket of underruns
ABORTS = {"cancelled": "cancelled", "client_left": "closed", "engine_unavailable": "engine_dead"}


def with_aliases(families: Iterable[Metric]) -> Iterator[Metric]:
    """The families, each followed by its aliases."""
    for family in families:
        yield family
        if name := SAME.get(family.name):
            yield _renamed(family, PREFIX + name)
        match family.name:
            case "cosyserve_speech_seconds":
                yield _completed(family)
            case "cosyserve_underrun_seconds":
                yield _continuous(family)
            case "cosyserve_aborts":
                yield _aborted(family)


def _renamed(family: Metric, name: str) -> Metric:
    alias = Metric(name, family.documentation, family.type)
    for sample in family.samples:
        labels = {"model_name" if key == "model" else key: v for key, v in sample.labels.items()}
        alias.add_sample(sample.name.replace(family.name, name, 1), labels, sample.value)
    return alias


def _completed(speech: Metric) -> Metric:
    alias = CounterMetricFamily(
        f"{PREFIX}speech_stream_completed", speech.documentation, labels=["model_name"]
    )
    for sample in speech.samples:
        if sample.name.endswith("_count"):
            alias.add_metric([sample.labels["model"]], sample.value)
    return alias


def _continuous(underruns: Metric) -> Metric:
    alias = CounterMetricFamily(
        f"{PREFIX}audio_continuity_ok",
        f"Streams with at most {CONTINUOUS:g} s of silence.",
        labels=["model_name", "threshold_ms"],
    )
    for sample in underruns.samples:
        if sample.labels.get("le") == str(CONTINUOUS):
            threshold = f"{1000 * CONTINUOUS:g}"
            alias.add_metric([sample.labels["model"], threshold], sample.value)
    return alias


def _aborted(aborts: Metric) -> Metric:
    counts: Counter[tuple[str, str]] = Counter()
    for sample in aborts.samples:
        if sample.name.endswith("_total"):
            reason = ABORTS.get(sample.labels["reason"], "error")
            counts[sample.labels["model"], reason] += int(sample.value)
    alias = CounterMetricFamily(
        f"{PREFIX}speech_stream_aborted", aborts.documentation, labels=["model_name", "reason"]
    )
    for labels, count in counts.items():
        alias.add_metric(labels, count)
    return alias
