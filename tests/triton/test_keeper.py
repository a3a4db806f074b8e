"""A server that is kept: on the ports that were asked for, with options of its own."""

from __future__ import annotations

import os
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
from cosyserve.signals import ENDING
from cosyserve.triton.keeper import LOOK_SECONDS, TritonKeeper, main
from cosyserve.triton.process import Ports
from tests.triton.scripted import OFFLINE, STREAMING, write_repository
from tests.waiting import START_PATIENCE, wait_until


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


def regions(pids: set[int]) -> set[str]:
    """Files of shared memory that these processes hold."""
    words = (word for pid in pids for word in Path(f"/proc/{pid}/maps").read_text().split())
    return {word for word in words if word.startswith("/dev/shm/")}


def control(ports: Ports, model: str, what: str) -> None:
    url = f"http://127.0.0.1:{ports.http}/v2/repository/models/{model}/{what}"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=30) as answer:
        assert answer.status == 200


def is_open(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_models_come_and_go_but_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    write_repository(tmp_path / "repository")
    ports = Ports.free()
    options = ["--model-control-mode=explicit", "--load-model=*"]
    keeper = TritonKeeper(tmp_path / "repository", ports, options, host="127.0.0.1")
    try:
        keeper.wait_ready()
        first = keeper.server
        for port in vars(ports).values():  # that of the metrics opens last
            wait_until(lambda port=port: is_open("127.0.0.1", port))  # type: ignore[misc]
            assert not is_open("127.0.0.2", port)  # as for any other address of this machine
        wait_until(lambda: len(first.stubs()) == 2)
        time.sleep(2 * LOOK_SECONDS)  # the keeper knows them, too
        control(ports, OFFLINE, "unload")
        wait_until(lambda: len(first.stubs()) == 1)
        control(ports, STREAMING, "load")  # another process of the same name takes over
        control(ports, OFFLINE, "load")
        time.sleep(3 * LOOK_SECONDS)
        assert (keeper.restarts, keeper.server) == (0, first)
        wait_until(lambda: len(first.stubs()) == 2)
        held = regions({first.process.pid, *first.stubs().values()})
        assert held
        for stub, pid in first.stubs().items():
            if stub.startswith(f"{OFFLINE}/"):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: keeper.restarts == 1, seconds=START_PATIENCE)
        assert [region for region in held if Path(region).exists()] == []
        keeper.wait_ready()
    finally:
        keeper.stop()
    assert [region for region in held if Path(region).exists()] == []


def test_a_keeper_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    write_repository(tmp_path / "repository")
    ports = Ports.free()
    given = [f"--{name}-port={port}" for name, port in vars(ports).items()]
    words = ["-m", "cosyserve.triton.keeper", str(tmp_path / "repository"), *given]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with (tmp_path / "log").open("wb") as log:
        keeper = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=env)
    try:
        wait_until(lambda: ready(ports.http), seconds=START_PATIENCE)
        children = subprocess.run(
            ["pgrep", "-P", str(keeper.pid), "tritonserver"], capture_output=True, text=True
        )
        (server,) = map(int, children.stdout.split())
        held = regions({server})
        assert held
        assert list(tmp_path.glob("cosyserve-triton-*"))
    finally:
        keeper.kill()
        keeper.wait()
    wait_until(lambda: not Path(f"/proc/{server}").exists(), 5)
    wait_until(lambda: not list(tmp_path.glob("cosyserve-triton-*")))
    assert [region for region in held if Path(region).exists()] == []
    ports.check_free()


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
    before = [signal.getsignal(number) for number in ENDING]
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert [signal.getsignal(number) for number in ENDING] == before
    assert complaint in capsys.readouterr().err
