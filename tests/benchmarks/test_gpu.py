"""The GPU's benchmark with small networks, on a CPU: every figure is found, and none takes others
along."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.bounds import GOALS, LAWS, compared, incorrect
from cosyserve.models import kernels

# What others read in benchmarks/history.
PROMISED = [
    "device",
    "torch",
    "lm_step_ms",
    "prefill_110_ms",
    "first_chunk_token2wav_ms",
    "first_audio_ms",
    "first_audio_http_ms",
    "http_first_audio_ms",
    "http_stages_ms",
    "http_crowd",
    "max_realtime_streams_http",
    "rtf_1_stream",
    "streams_32",
    "max_realtime_streams",
    "offline_b64_audio_s_per_s",
    "transformers_step_ms",
    "warmup_s",
    "gpu_memory_gib",
    "mel_rel_error",
    "nan_in_1000",
]


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_figure_of_a_cpu_is_found() -> None:
    elsewhere = {
        "transformers_step_ms",
        "kernels_against_module",
        "draws_chi2",
        "int8_agreement",
        "http_crowd",  # another server, which takes its time
    }
    names = [name for name in gpu.FIGURES if name not in elsewhere]
    report = gpu.measure(Bench(tiny=True, deadline=time.monotonic() + 600), names)
    assert report["failed"] == {}
    assert list(report)[: len(PROMISED)] == PROMISED
    assert set(report["lm_step_ms"]) == {"1", "16", "64", "128", "256"}
    assert report["first_audio_ms"]["p95"] >= report["first_audio_ms"]["p50"] > 0
    assert 0 <= report["streams_32"]["c100"] <= 1
    assert report["mel_rel_error"] < 1e-3  # float32 here
    assert (report["nan_in_1000"], report["beside"]["nan_with_large_weights"]) == (0, 0)
    assert report["beside"]["captured_equal"]
    assert set(report["beside"]["laws"]) == set(LAWS)
    assert report["beside"]["laws"]["company_db"] < -60  # float32
    assert report["transformers_step_ms"] == {"1": None, "64": None}
    assert incorrect(report) == []
    missing = [line.split()[0] for line in compared(report) if "not measured" in line]
    assert missing == [
        "http_first_audio_ms.p50",
        *("http_crowd.200.first_audio_p95_ms", "http_crowd.200.c100"),
        "max_realtime_streams_http",
    ]


def test_a_flow_that_remembers_is_measured_against_its_caches() -> None:
    bench = Bench(tiny=True, deadline=time.monotonic() + 600, family="dit")
    names = ["first_chunk_token2wav_ms", "first_chunk_eager_ms", "captured_equal", "laws"]
    report = gpu.measure(bench, names)
    assert report["failed"] == {}
    assert report["beside"]["eager_first_chunk_to_ours"] > 0
    assert report["beside"]["captured_equal"]
    assert incorrect(report) == []


def test_a_figure_that_fails_is_null_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: Bench) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(gpu.FIGURES, "lm_step_ms", broken)
    names = ["lm_step_ms", "prefill_110_ms"]
    report = gpu.measure(Bench(tiny=True, deadline=time.monotonic() + 60), names)
    assert report["failed"] == {"lm_step_ms": "RuntimeError: no such kernel"}
    assert report["lm_step_ms"]["1"] is None
    assert report["prefill_110_ms"] > 0


def test_time_is_limited() -> None:
    report = gpu.measure(Bench(tiny=True, deadline=time.monotonic() - 1), ["prefill_110_ms"])
    assert report["failed"] == {"prefill_110_ms": "no time was left"}


def test_small_tiles_are_measured_against_the_plain_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_chosen", "auto")  # and so it is again afterwards
    bench = Bench(tiny=True, deadline=time.monotonic() + 600, kernels="small")
    names = ["lm_step_ms", "lm_step_without_kernels_ms"]
    chunks = {"first_chunk_token2wav_ms": 10.0, "first_chunk_without_kernels_ms": 12.0}
    for name, ms in chunks.items():
        monkeypatch.setitem(gpu.FIGURES, name, lambda _, ms=ms: ms)
    report = gpu.measure(bench, [*names, *chunks])
    assert kernels._chosen == "small"  # as before the plain modules
    assert set(gpu.SMALL_FIGURES) <= set(gpu.FIGURES)
    step, chunk = compared(report)
    assert "beside.plain_step_to_ours_1" in step
    assert "not measured" not in step
    assert chunk.split() == ["beside.plain_first_chunk_to_ours", "1.2", ">=", "1.3", "NO"]


def test_goals_and_bounds_are_told() -> None:
    failed = {"laws": "AssertionError: 7 samples", "draws_chi2": "CosyError: no kernels"}
    report = {**gpu.KEYS, "beside": {"captured_equal": False}, "mel_rel_error": 0.1}
    report |= {"failed": failed, "family": "cosyvoice2", "kernels": "auto"}
    wrong = ["mel_rel_error: 0.1", "beside.captured_equal: False"]
    assert incorrect(report) == [*wrong, "beside.laws: AssertionError: 7 samples"]
    lines = compared(report | {"prefill_110_ms": 1.5, "rtf_1_stream": 0.5})
    assert len(lines) == len(GOALS["cosyvoice2"])
    assert next(line for line in lines if "yes" in line).split()[:2] == ["prefill_110_ms", "1.5"]
    assert "rtf_1_stream                              0.5  <= 0.03   NO" in lines
