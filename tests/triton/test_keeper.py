"""A server that is kept: on the ports that were asked for, with options of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cosyserve.errors import InputError
from cosyserve.triton.keeper import TritonKeeper, main
from cosyserve.triton.process import Ports
from tests.triton.scripted import write_repository


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/v2/health/ready", timeout=2
        ) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize(
    "command", [["-m", "cosyserve.triton.keeper"], ["-m", "cosyserve", "deploy", "start"]]
)
def test_a_server_is_kept_on_its_ports(tmp_path: Path, command: list[str]) -> None:
    write_repository(tmp_path / "repository")
    ports = Ports.free()
    given = [f"--{name}-port={port}" for name, port in vars(ports).items()]
    options = ["--", "--metrics-interval-ms=500", "--id=kept"]
    words = [sys.executable, *command, str(tmp_path / "repository"), *given, *options]
    with (tmp_path / "log").open("wb") as log:
        keeper = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not ready(ports.http):
            assert time.monotonic() < until
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{ports.http}/v2", timeout=5) as answer:
            assert b'"kept"' in answer.read()
        with socket.create_connection(("127.0.0.1", ports.grpc), timeout=5):
            pass
    finally:
        keeper.send_signal(signal.SIGTERM)
        status = keeper.wait(timeout=60)
    assert status == 0, (tmp_path / "log").read_text()
    assert not ready(ports.http)


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    free = Ports.free()
    with (
        socket.create_server(("127.0.0.1", free.grpc)),
        pytest.raises(InputError, match=f"port {free.grpc}: .*--grpc-port"),
    ):
        TritonKeeper(tmp_path, free)
    with pytest.raises(InputError, match=f"port {free.http}: .*--metrics-port"):
        TritonKeeper(tmp_path, Ports(free.http, free.grpc, free.http))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "nowhere: no such folder"),
        ([".", "--http-port", "70000"], "--http-port must be 1..65535, got 70000"),
        ([".", "--http-port", "x"], "invalid int value"),
        ([".", "--", "--http-port=9"], "before the --"),
        ([], "required: repository"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["keeper", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
