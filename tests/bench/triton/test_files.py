"""The files of the original's client, out of samples whose figures are known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cosyserve.bench.figures import figures
from cosyserve.bench.items import Single
from cosyserve.bench.load import ClosedLoop
from cosyserve.bench.playback import Arrival
from cosyserve.bench.report.report import BenchOptions, Report, this_host
from cosyserve.bench.sample import Failure, Sample
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.bench.triton.files import write_triton_files
from cosyserve.errors import InputError

SAMPLES = (
    Sample("a", 0.0, 1.0, (Arrival(0.2, 1.0), Arrival(0.5, 1.0))),
    Sample("b", 0.0, 3.0, (Arrival(0.4, 1.0), Arrival(1.4, 1.0))),
    Sample("c", 0.0, 9.0, (), Failure("timeout", "")),
)
STATISTICS: list[dict[str, Any]] = [
    {
        "name": "cosyvoice2",
        "last_inference": "1",
        "inference_stats": {
            "queue": {"count": "3", "ns": "1500000000"},
            "compute_infer": {"count": "3", "ns": "2500000000"},
        },
        "batch_stats": [
            {
                "batch_size": "2",
                "compute_input": {"count": "4", "ns": "8000000"},
                "compute_infer": {"count": "4", "ns": "80000000"},
                "compute_output": {"count": "4", "ns": "4000000"},
            }
        ],
    },
    {"name": "idle", "inference_stats": {}},
]


def written(folder: Path, streaming: bool, samples: tuple[Sample, ...] = SAMPLES) -> dict[str, str]:
    options = BenchOptions(TritonEndpoint("x:1"), ClosedLoop(1), Single("Hi."))
    report = Report("1", "now", options, this_host(), figures(samples), samples)
    write_triton_files(report, streaming, STATISTICS, {"name": "cosyvoice2"}, folder, "zh")
    return {file.name: file.read_text() for file in folder.iterdir()}


def numbers(text: str) -> dict[str, float]:
    return {key: float(value) for key, value in re.findall(r"^(\w[\w ]*): ([\d.]+)", text, re.M)}


def test_streamed(tmp_path: Path) -> None:
    files = written(tmp_path, streaming=True)
    assert files.keys() == {"rtf-zh.txt", "stats_summary-zh.txt", "model_config-zh.json"}
    assert files["rtf-zh.txt"].startswith("Mode: streaming\n")
    found = numbers(files["rtf-zh.txt"])
    assert found["RTF"] == 9 / 4
    assert found["total_duration"] == 4
    assert found["processing time"] == 9
    assert found["average_total_request_latency_ms"] == 2000
    assert found["total_request_latency_variance"] == 1000
    assert found["first_chunk_latency_50_percentile_ms"] == 300
    assert found["first_chunk_latency_99_percentile_ms"] == 398
    assert found["average_second_chunk_latency_ms"] == 650
    assert found["second_chunk_latency_90_percentile_ms"] == 930
    assert "requests: 3, failed: 1" in files["rtf-zh.txt"]


def test_offline(tmp_path: Path) -> None:
    files = written(tmp_path, streaming=False)
    found = numbers(files["rtf-zh.txt"])
    assert found["average_latency_ms"] == 2000
    assert found["latency_95_percentile_ms"] == 2900
    assert "first_chunk" not in files["rtf-zh.txt"]


def test_what_triton_counted(tmp_path: Path) -> None:
    files = written(tmp_path, streaming=True)
    summary = files["stats_summary-zh.txt"]
    assert "queue time 1.50 s" in summary
    assert "compute infer time 2.50 s" in summary
    assert "batch size 2: 4 times" in summary
    assert "compute infer 20.00 ms" in summary
    assert "10.00 ms of compute infer a request" in summary
    assert "idle" not in summary
    assert json.loads(files["model_config-zh.json"]) == {"config": {"name": "cosyvoice2"}}


def test_nothing_served(tmp_path: Path) -> None:
    text = written(tmp_path, streaming=True, samples=SAMPLES[2:])["rtf-zh.txt"]
    assert "RTF: nan" in text
    assert "first_chunk_latency: none measured" in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written"):
        written(tmp_path / "no", streaming=True)
