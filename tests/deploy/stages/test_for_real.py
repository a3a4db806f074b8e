"""Both scripts' stages with tiny models, by the command, through real Triton servers."""

from __future__ import annotations

import json
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

ONE_THREAD = {"COSYSERVE_THREADS": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording, and a text and tokens to speak in its voice."""
    noise = np.random.default_rng(0).standard_normal(2 * 24_000).astype(np.float32) * 0.1
    (tmp_path / "me.wav").write_bytes(encode(noise, AudioFormat.WAV))
    (tmp_path / "list.txt").write_text("one|What I say.|me.wav|Good morning.\n")
    tokens = np.random.default_rng(1).integers(0, 6561, 40).tolist()
    item = {"id": "one", "prompt_text": "", "prompt_audio": "me.wav"}
    item["target_audio_cosy2_tokens"] = tokens
    (tmp_path / "tokens.jsonl").write_text(json.dumps(item) + "\n")
    return tmp_path


def run(folder: Path, first: int, last: int, *options: str) -> str:
    voice = ("--reference-audio", "me.wav", "--reference-text", "What I say.")
    texts = ("--manifest", "list.txt", "--tokens", "tokens.jsonl", "--target-text", "Hello.")
    stages = ("--stage", str(first), "--stop-stage", str(last))
    command = [sys.executable, "-m", "cosyserve", "deploy", "run", *stages, *voice, *texts]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=os.environ | ONE_THREAD | {"COSYSERVE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )
    logs = "".join(log.read_text() for log in folder.glob("logs/*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    return done.stderr


def port_options(ports: Ports) -> list[str]:
    numbers = {
        "--http-port": ports.http,
        "--grpc-port": ports.grpc,
        "--metrics-port": ports.metrics,
    }
    return [word for name, port in numbers.items() for word in (name, str(port))]


def three_free_ports() -> int:
    """The first of them."""
    first = Ports.free().http
    return next(n for n in range(first, 65533) if not any(is_taken(n + i) for i in range(3)))


def test_run_sh(folder: Path) -> None:
    """From a published folder to files that clients and benchmarks have written."""
    published.write_cosyvoice2(folder / "CosyVoice2-0.5B")
    options = [*port_options(Ports.free()), "--batch-size", "1", "--num-tasks", "1"]
    run(folder, 0, 6, *options)
    assert (folder / "test.wav").stat().st_size > 1000
    assert (folder / "output.wav").stat().st_size > 1000
    logs = folder / "log_cosyvoice2_concurrent_tasks_1"
    assert {"one.wav", "rtf-list.txt"} <= {file.name for file in logs.iterdir()}
    offline = next((folder / "log_cosyvoice2_offline").rglob("log.txt"))
    assert json.loads(offline.read_text())["token2wav_time_seconds"] > 0
    again = run(folder, 0, 2, *options)
    assert again.count("done already") == 2
    assert "there already" in again


def test_the_dit_script(folder: Path) -> None:
    """LM and token2wav on servers of their own, which a benchmark asks together."""
    published.write_hugging_face_lm(folder / "cosyvoice2_llm")
    published.write_token2wav(folder / "Step-Audio-2-mini-token2wav")
    options = ["--flow", "dit", "--gpus", "1", "--instances-per-gpu", "1"]
    options += port_options(Ports.free())
    options += ["--llm-port", str(three_free_ports())]
    run(folder, 1, 2, *options)
    said = run(folder, 6, 8, *options)
    assert "failed" not in said
    for way in ("equal", "exponential", "whole"):
        assert list((folder / f"log_cosyvoice2_dit_tokens_{way}").rglob("*.wav"))
