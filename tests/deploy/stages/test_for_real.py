"""Both scripts' stages with tiny models, by the command, through real Triton servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.doctor.servers import is_taken
from cosyserve.triton.process import Ports
from tests import published

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording, and a text to speak in its voice."""
    noise = np.random.default_rng(0).standard_normal(2 * 24_000).astype(np.float32) * 0.1
    (tmp_path / "me.wav").write_bytes(encode(noise, AudioFormat.WAV))
    (tmp_path / "list.txt").write_text("one|What I say.|me.wav|Good morning.\n")
    return tmp_path


def run(folder: Path, first: int, last: int, *options: str) -> str:
    voice = ("--reference-audio", "me.wav", "--reference-text", "What I say.")
    texts = ("--manifest", "list.txt", "--target-text", "Hello.", "--num-tasks", "1")
    stages = ("--stage", str(first), "--stop-stage", str(last))
    command = [sys.executable, "-m", "cosyserve", "deploy", "run", *stages, *voice, *texts]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=os.environ | {"COSYSERVE_THREADS": "1", "COSYSERVE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )
    logs = "".join(log.read_text() for log in folder.glob("logs/*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    return done.stderr


def port_options(ports: Ports) -> list[str]:
    http, grpc, metrics = map(str, (ports.http, ports.grpc, ports.metrics))
    return ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]


def three_free_ports() -> int:
    """The first of them, below those that the system gives to whoever wants any: they must still be
    free when the servers start."""
    return next(n for n in range(20_000, 30_000) if not any(is_taken(n + i) for i in range(3)))


def test_run_sh(folder: Path) -> None:
    """All of it, with a published folder in its place: to files that clients and benchmarks have
    written."""
    published.write_cosyvoice2(folder / "CosyVoice2-0.5B")
    said = run(folder, -1, 6, "--batch-size", "1", *port_options(Ports.free()))
    assert (folder / "test.wav").stat().st_size > 1000
    assert (folder / "output.wav").stat().st_size > 1000
    logs = folder / "log_cosyvoice2_concurrent_tasks_1"
    assert {"one.wav", "rtf-list.txt"} <= {file.name for file in logs.iterdir()}
    assert list((folder / "log_cosyvoice2_offline").rglob("*.wav"))
    assert "done already" not in said


def test_run_stepaudio2_dit_token2wav_sh(folder: Path) -> None:
    """From published folders on: one server, then LM and token2wav on servers of their own."""
    published.write_hugging_face_lm(folder / "cosyvoice2_llm")
    published.write_token2wav(folder / "Step-Audio-2-mini-token2wav")
    tokens = " ".join(map(str, range(100, 160)))
    (folder / "tokens.txt").write_text(f"one|What I say.|me.wav|{tokens}\n")
    options = ["--flow", "dit", "--gpus", "1", "--instances-per-gpu", "1", "--batch-size", "1"]
    options += ["--tokens", "tokens.txt", "--llm-port", str(three_free_ports())]
    options += port_options(Ports.free())
    run(folder, 1, 6, *options)
    for name in ("concurrent_tasks_1", "offline", "tokens_equal", "tokens_whole"):
        assert list((folder / f"log_cosyvoice2_dit_{name}").rglob("*.wav")), name
    run(folder, 7, 8, *options)
    assert (folder / "log_cosyvoice2_dit_disaggregated" / "sweep.json").stat().st_size
