"""A run on a Triton server, and the files that the original's client writes of it.

rtf-NAME.txt, stats_summary-NAME.txt, model_config-NAME.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from cosyserve.bench.report.report import BenchOptions, Report
from cosyserve.bench.run import run_bench
from cosyserve.bench.statistics import distribution, variance
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.errors import InputError

STAGES = {
    "queue": "queue",
    "compute input": "compute_input",
    "compute infer": "compute_infer",
    "compute output": "compute_output",
}


async def bench_triton(options: BenchOptions, name: str) -> Report:
    """A run on one Triton server, whose files are written beside the speech."""
    server, folder = options.endpoint, options.save_audio
    assert isinstance(server, TritonEndpoint)
    assert folder is not None
    report = await run_bench(options)
    async with aclosing(server.client()) as client:
        facts = await client.statistics(), await client.config()
    write_triton_files(report, server.streaming, *facts, folder, name)
    return report


def write_triton_files(
    report: Report,
    streaming: bool,
    statistics: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
    folder: Path,
    name: str,
) -> None:
    """`statistics` are Triton's, of every model; `config` is the speech model's."""
    files = {
        f"rtf-{name}.txt": "\n".join(_rtf(report, streaming)),
        f"stats_summary-{name}.txt": "\n".join(
            line for model in statistics for line in _summary(model)
        ),
        f"model_config-{name}.json": json.dumps({"config": config}, indent=4),
    }
    for file, content in files.items():
        try:
            (folder / file).write_text(content + "\n", "utf-8")
        except OSError as error:
            raise InputError(f"{folder / file} can't be written: {error.strerror}") from error


def _rtf(report: Report, streaming: bool) -> Iterator[str]:
    figures = report.figures
    served = [sample for sample in report.samples if sample.failure is None]
    totals = [sample.total for sample in served]
    yield f"Mode: {'streaming' if streaming else 'offline'}"
    yield f"RTF: {figures.rtf or float('nan'):.4f}"
    yield f"total_duration: {_seconds(figures.audio_seconds)}"
    yield f"processing time: {_seconds(figures.wall_seconds)}"
    yield f"requests: {figures.requests}, failed: {figures.requests - figures.served}"
    if not streaming:
        yield from _latency("latency", totals)
        return
    gaps = [gap for sample in served if (gap := sample.second_chunk) is not None]
    for title, values in (
        ("total_request_latency", totals),
        ("first_chunk_latency", [sample.first_audio for sample in served]),
        ("second_chunk_latency", gaps),
    ):
        yield ""
        yield from _latency(title, values)


def _latency(title: str, values: Sequence[float]) -> Iterator[str]:
    spread, variance_of_seconds = distribution(values), variance(values)
    if spread is None or variance_of_seconds is None:
        yield f"{title}: none measured"
        return
    yield f"{title}_variance: {1000 * variance_of_seconds:.2f}"  # times 1000, as the original's
    for percent in (50, 90, 95, 99):
        yield f"{title}_{percent}_percentile_ms: {1000 * getattr(spread, f'p{percent}'):.2f}"
    yield f"average_{title}_ms: {1000 * spread.mean:.2f}"


def _summary(model: Mapping[str, Any]) -> Iterator[str]:
    """The times of a model in all, then of its batches by size."""
    if "last_inference" not in model:
        return
    stages = model.get("inference_stats", {})
    yield f"model {model['name']}"
    yield ", ".join(
        f"{words} time {_nanoseconds(stages, key) / 1e9:.2f} s" for words, key in STAGES.items()
    )
    for batch in model.get("batch_stats", ()):
        size = int(batch["batch_size"])
        count = int(batch.get("compute_infer", {}).get("count", 0)) or 1
        means = {w: _nanoseconds(batch, k) / 1e6 / count for w, k in STAGES.items() if k in batch}
        yield (
            f"  batch size {size}: {count} times, "
            + ", ".join(f"{words} {ms:.2f} ms" for words, ms in means.items())
            + f" each; {means.get('compute infer', 0.0) / size:.2f} ms of compute infer a request"
        )
    yield ""


def _nanoseconds(stages: Mapping[str, Any], key: str) -> int:
    return int(stages.get(key, {}).get("ns", 0))


def _seconds(value: float) -> str:
    return f"{value:.3f} seconds ({value / 3600:.2f} hours)"
