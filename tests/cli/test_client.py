"""`cosyserve client` as a person uses it, against a real Triton server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.cli import main
from tests.triton.scripted import OFFLINE, Scripted, script

Command = Callable[..., str]


@pytest.fixture
def cosyserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    def run(*words: str, status: int = 0) -> str:
        group = [] if words[0] == "bench" else ["client"]
        monkeypatch.setattr(sys, "argv", ["cosyserve", *group, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capfd.readouterr()
        assert ended.value.code == status, output.err
        return output.out + output.err

    noise = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
    (tmp_path / "me.wav").write_bytes(encode(noise, AudioFormat.WAV))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return run


def test_http(tmp_path: Path, cosyserve: Command, scripted_triton: Scripted) -> None:
    output = cosyserve(
        *("http", "--server-url", scripted_triton.http, "--model-name", OFFLINE),
        *("--reference-audio", "me.wav", "--reference-text", "Words."),
        *("--target-text", script(samples=4800), "--output-audio", "said.wav"),
    )
    assert "0.20 s of speech to said.wav" in output
    assert len(decode(tmp_path / "said.wav").samples) == 4800


def test_http_writes_wav_files_alone(cosyserve: Command) -> None:
    assert "name it .wav" in cosyserve("http", "--output-audio", "said.mp3", status=2)


def test_http_tells_what_a_streaming_model_needs(
    cosyserve: Command, scripted_triton: Scripted
) -> None:
    output = cosyserve("http", "--server-url", scripted_triton.http, status=2)
    assert "decoupled" in output
    assert "or ask cosyvoice2_offline" in output


def port(triton: Scripted) -> list[str]:
    return ["--server-port", triton.grpc.split(":")[1]]


def test_grpc_once(tmp_path: Path, cosyserve: Command, scripted_triton: Scripted) -> None:
    output = cosyserve(
        *("grpc", *port(scripted_triton), "--mode", "streaming", "--log-dir", "log"),
        *("--reference-audio", "me.wav", "--target-text", script(chunks=3)),
    )
    assert "speech and figures are in log" in output
    assert len(decode(tmp_path / "log" / "test.wav").samples) == 3 * 2400
    assert "Mode: streaming" in (tmp_path / "log" / "rtf-test.txt").read_text()


@pytest.mark.parametrize("mode", ["offline", "streaming"])
def test_grpc_a_manifest(
    tmp_path: Path, cosyserve: Command, scripted_triton: Scripted, mode: str
) -> None:
    lines = [f"item{n}|Words.|me.wav|{script(chunks=2, samples=2400)}" for n in range(5)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    model = OFFLINE if mode == "offline" else "cosyvoice2"
    output = cosyserve(
        *("grpc", "--server-addr", "localhost", *port(scripted_triton), "--model-name", model),
        *("--num-tasks", "2", "--mode", mode, "--manifest-path", "list.txt", "--log-dir", "log"),
        *("--log-interval", "1", "--chunk-overlap-duration", "0.1", "--compute-wer"),
    )
    assert "first audio" in output
    files = {file.name for file in (tmp_path / "log").iterdir()}
    assert files == {
        *(f"item{n}.wav" for n in range(5)),
        *("rtf-list.txt", "stats_summary-list.txt", "model_config-list.json"),
    }
    assert "total_duration: 1.000 seconds" in (tmp_path / "log" / "rtf-list.txt").read_text()
    summary = (tmp_path / "log" / "stats_summary-list.txt").read_text()
    assert f"model {model}\n" in summary
    assert "batch size 1: " in summary


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ([], True),
        (["--use-spk2info-cache", "False"], True),
        (["--use-spk2info-cache=false"], True),
        (["--use-spk2info-cache", "True"], False),
        (["--use-spk2info-cache"], False),
    ],
)
def test_grpc_recordings_are_sent_or_not_as_run_sh_says(
    tmp_path: Path, cosyserve: Command, scripted_triton: Scripted, words: list[str], sent: bool
) -> None:
    """The words of the original's run.sh, with a list in place of its dataset."""
    (tmp_path / "list.txt").write_text(f"item|Words.|me.wav|{script(echo=True)}")
    options = ["--manifest-path", "list.txt", "--log-dir", "./log_concurrent_tasks_4"]
    run = (
        *("grpc", "--server-addr", "localhost", *port(scripted_triton)),
        *("--model-name", "cosyvoice2", "--num-tasks", "4", "--mode", "streaming"),
        *(*words, *options),
    )
    output = cosyserve(*run, status=0 if sent else 1)
    assert ("an answer without audio" in output) is not sent


def test_grpc_says_what_the_cache_may_be(cosyserve: Command) -> None:
    assert "maybe" in cosyserve("grpc", "--use-spk2info-cache", "maybe", status=2)


def test_grpc_a_run_that_fails_is_told(cosyserve: Command, scripted_triton: Scripted) -> None:
    output = cosyserve("grpc", *port(scripted_triton), "--target-text", "Hi.", status=1)
    assert "failure" in output
    assert "--mode streaming" in output  # the model streams, and was not asked to


def test_a_dataset_needs_a_package(
    cosyserve: Command, scripted_triton: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    output = cosyserve("grpc", *port(scripted_triton), "--split-name", "test_zh", status=2)
    assert "pip install datasets" in output


def test_several_servers(tmp_path: Path, cosyserve: Command, scripted_triton: Scripted) -> None:
    addresses = [word for _ in range(2) for word in ("--address", scripted_triton.grpc)]
    request = "--mode", "streaming", "--target-text", script()
    output = cosyserve(
        *("bench", "triton", *addresses, *request, "--gpus", "1,2", "--tasks", "1"),
        *("--tasks", "2", "--llm-gpus", "0", "--json", "sweep.json"),
    )
    assert "concurrent_task_per_gpu" in output
    rows = json.loads((tmp_path / "sweep.json").read_text())
    found = [(row["gpus"], row["tasks_per_instance"]) for row in rows]
    assert found == [(1, 1), (1, 2), (2, 1), (2, 2)]
    cosyserve("grpc", *addresses, *request, "--num-tasks", "2", "--log-dir", "log")
    (row,) = json.loads((tmp_path / "log" / "sweep.json").read_text())
    assert (row["gpus"], row["tasks_per_instance"], row["figures"]["served"]) == (2, 2, 4)


def test_several_servers_that_can_not_be(cosyserve: Command) -> None:
    words = "bench", "triton", "--target-text", "Hi.", "--address", "localhost:1"
    assert "--gpus wants" in cosyserve(*words, "--gpus", "1,two", status=2)
    assert "need 2 addresses" in cosyserve(*words, "--gpus", "2", status=2)
    assert "no server answers" in cosyserve(*words, "--tasks", "1", status=2)


def test_one_server_as_json(tmp_path: Path, cosyserve: Command, scripted_triton: Scripted) -> None:
    cosyserve(
        *("bench", "triton", *port(scripted_triton), "--mode", "streaming", "--json", "run.json"),
        *("--target-text", script()),
    )
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["figures"]["served"] == 1
    assert (tmp_path / "tmp" / "rtf-test.txt").exists()


def test_nobody_there(cosyserve: Command) -> None:
    output = cosyserve("grpc", "--server-port", "1", "--target-text", "Hi.", status=2)
    assert "no server answers" in output
