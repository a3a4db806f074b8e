"""`cosyserve client` against the real models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.contracts import Floats
from tests.triton.server import Served

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture
def folder(tmp_path: Path, recording: Floats) -> Path:
    (tmp_path / "me.wav").write_bytes(encode(recording, AudioFormat.WAV, 16_000, 16_000))
    lines = [f"item{n}|A few words.|me.wav|{TEXT}" for n in range(4)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    return tmp_path


def client(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "cosyserve", "client", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_http(served: Served, folder: Path) -> None:
    client(
        folder,
        *("http", "--server-url", served.http, "--model-name", "cosyvoice2_offline"),
        *("--reference-audio", "me.wav", "--reference-text", "A few words."),
        *("--target-text", TEXT),
    )
    assert decode(folder / "output.wav").seconds > 1


def test_offline_and_streamed_speech_are_the_same(served: Served, folder: Path) -> None:
    port = ["--server-port", str(served.process.ports.grpc), "--manifest-path", "list.txt"]
    client(folder, "grpc", *port, "--num-tasks", "2", "--mode", "streaming", "--log-dir", "a")
    client(folder, "grpc", *port, "--model-name", "cosyvoice2_offline", "--log-dir", "b")
    for n in range(4):
        streamed, whole = (decode(folder / log / f"item{n}.wav").samples for log in "ab")
        assert len(streamed) == len(whole)
        assert np.abs(streamed - whole).max() < 0.1
    told = (folder / "a" / "rtf-list.txt").read_text()
    assert "average_second_chunk_latency_ms: " in told
    assert "requests: 4, failed: 0" in told
    summary = (folder / "a" / "stats_summary-list.txt").read_text()
    assert {"model cosyvoice2", "model token2wav", "model tensorrt_llm"} <= set(summary.split("\n"))
    config = json.loads((folder / "a" / "model_config-list.json").read_text())
    assert config["config"]["name"] == "cosyvoice2"
