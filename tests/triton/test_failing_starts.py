"""A kept server that does not start: how often it is tried, and what is told at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyserve.errors import CosyError
from cosyserve.triton import keeper as keeping
from cosyserve.triton.keeper import ERRORS, STARTS, TritonKeeper
from cosyserve.triton.process import Ports
from tests.triton.scripted import write_repository
from tests.waiting import START_PATIENCE, wait_until


def test_a_server_that_never_starts_is_tried_again_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PAUSES", (0.0, 0.0))
    write_repository(tmp_path / "repository")
    keeper = TritonKeeper(tmp_path / "repository", Ports.free(), ["--no-such-option"])
    with pytest.raises(CosyError, match="ended at its start"):
        keeper.wait_ready()
    keeper.stop()
    assert keeper.restarts >= ERRORS - 1


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of tritonserver -> the file where it notes its starts.
    `$stub` is a program that dies at once."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.02)

    def write(name: str, script: str) -> Path:
        path = programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def server(script: str) -> Path:
        stub = write("triton_python_backend_stub", "kill -s KILL $$")
        starts = tmp_path / "starts"
        write("tritonserver", f"echo start >> {starts}; stub={stub}; {script}")
        return starts

    return server


@pytest.mark.parametrize(
    ("script", "starts"),
    [("echo out of luck; kill -s ABRT $$", STARTS), ("echo out of luck; exit 1", ERRORS)],
    ids=["abort", "error"],
)
def test_an_abort_is_tried_more_often_than_an_error(
    tmp_path: Path,
    program: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    starts: int,
) -> None:
    monkeypatch.setattr(keeping, "PAUSES", (*starts * [0.0], 60.0))
    started = program(script)
    keeper = TritonKeeper(tmp_path, Ports.free())
    with pytest.raises(CosyError, match=f"ended at its start, {starts} times:\nout of luck"):
        keeper.wait_ready(20)
    keeper.stop()
    assert len(started.read_text().split()) == starts


def test_deploy_start_ends_where_a_server_never_was_ready(
    tmp_path: Path, program: Callable[[str], Path]
) -> None:
    started = program("echo out of luck; exit 1")
    given = [f"--{name}-port={port}" for name, port in vars(Ports.free()).items()]
    words = [sys.executable, "-m", "cosyserve", "deploy", "start", str(tmp_path), *given]
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_PATIENCE)
    assert done.returncode == 2
    assert f"ended at its start, {ERRORS} times" in done.stderr
    assert done.stderr.count("out of luck") == len(started.read_text().split()) == ERRORS


def test_a_server_that_was_ready_is_never_given_up(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PAUSES", (0.0,))
    (tmp_path / "v2" / "health").mkdir(parents=True)
    (tmp_path / "v2" / "health" / "ready").touch()
    ports = Ports.free()
    serve = f"exec {sys.executable} -m http.server {ports.http} --directory {tmp_path}"
    started = program(f"mkdir {tmp_path}/once && {serve}; exit 1")
    keeper = TritonKeeper(tmp_path, ports)
    try:
        keeper.wait_ready(START_PATIENCE)
        wait_until(lambda: keeper.server.was_ready)
        keeper.server.process.kill()
        wait_until(lambda: len(started.read_text().split()) > STARTS + 1, seconds=START_PATIENCE)
        keeper.check()
    finally:
        keeper.stop()


def test_a_server_that_waits_for_a_dead_process_is_replaced(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PAUSES", (*ERRORS * [0.0], 60.0))
    monkeypatch.setattr(keeping, "HUNG_SECONDS", 0.5)
    started = program('echo in vain; "$stub" & exec sleep 60')
    began = time.monotonic()
    keeper = TritonKeeper(tmp_path, Ports.free())
    with pytest.raises(CosyError, match=f"ended at its start, {ERRORS} times:\nin vain"):
        keeper.wait_ready(20)
    keeper.stop()
    assert len(started.read_text().split()) == ERRORS
    assert time.monotonic() - began > ERRORS * 0.5


def test_a_server_that_knows_of_a_death_is_left_alone(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "HUNG_SECONDS", 0.2)
    started = program('"$stub" & wait; sleep 60 & wait')
    keeper = TritonKeeper(tmp_path, Ports.free())
    with pytest.raises(CosyError, match="not ready after 1 s"):
        keeper.wait_ready(1)
    keeper.stop()
    assert started.read_text().split() == ["start"]


def test_a_process_that_dies_at_once_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "HUNG_SECONDS", 2.0)
    write_repository(tmp_path / "repository")
    keeper = TritonKeeper(tmp_path / "repository", Ports.free(), host="127.0.0.1")
    try:
        while not (stubs := keeper.server.stubs()):
            time.sleep(0.001)
        os.kill(min(stubs.values()), signal.SIGKILL)
        keeper.wait_ready(60)
        assert keeper.restarts >= 1
    finally:
        keeper.stop()
