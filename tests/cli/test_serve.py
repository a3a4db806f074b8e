"""`cosyserve serve` as a whole, gateway and worker process: many at once, deaths, leaving."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.talking import talking
from tests.serving import served
from tests.waiting import PATIENCE, START_PATIENCE, wait_until

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with served(tmp_path_factory.mktemp("home")) as (url, process):
        yield url, process.pid


def speech(url: str, **fields: object) -> httpx.Response:
    body = {"model": "test", "input": TEXT, "voice": "default", "response_format": "pcm"} | fields
    return httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60)


def workers(pid: int) -> list[int]:
    pids = subprocess.run(
        ["pgrep", "-P", str(pid), "-f", "cosyserve.engine.workers.worker"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in pids.stdout.split()]


def wait_until_ready(url: str) -> None:
    wait_until(lambda: httpx.get(f"{url}/ready").status_code == 200, seconds=START_PATIENCE)


def test_many_at_once_are_all_served_or_told_to_wait(server: tuple[str, int]) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda i: speech(server[0], seed=i).status_code, range(16)))
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 8


def test_a_worker_that_is_killed_comes_back(server: tuple[str, int]) -> None:
    url, pid = server
    (worker,) = workers(pid)
    with httpx.stream(
        "POST",
        f"{url}/v1/audio/speech",
        json={"model": "test", "input": TEXT * 8, "voice": "default", "response_format": "pcm"},
        timeout=30,
    ) as response:
        audio = response.iter_raw()
        next(audio)
        os.kill(worker, signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):  # cut off, not ended as if all were well
            list(audio)
        assert time.monotonic() - begun < PATIENCE  # does not hang until the client's timeout
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/ready").status_code == 503
    assert speech(url).status_code == 503
    wait_until_ready(url)
    assert speech(url).status_code == 200
    assert len(workers(pid)) == 1


def test_whoever_leaves_the_websocket_leaves_nothing_behind(server: tuple[str, int]) -> None:
    for stage in range(8):
        with talking(server[0]) as talk:
            talk.start()
            talk.text(TEXT * 2)
            if stage % 2:
                talk.send("end")
            if stage % 4 > 1:
                talk.hear("started")
                talk.socket.recv(timeout=20)
            if stage > 3:
                talk.socket.socket.shutdown(socket.SHUT_RDWR)
    counts = ("cosyserve_running", "cosyserve_waiting", "cosyserve_connections")
    rest = {f'{count}{{model="test"}} 0.0' for count in counts}
    wait_until(lambda: rest <= set(httpx.get(f"{server[0]}/metrics").text.splitlines()))


def test_a_worker_that_dies_is_told_of_on_the_websocket(server: tuple[str, int]) -> None:
    url, pid = server
    (worker,) = workers(pid)
    with talking(url) as talk:
        talk.start()
        talk.hear("started")
        talk.text(TEXT * 3)
        assert isinstance(talk.socket.recv(timeout=20), bytes)
        os.kill(worker, signal.SIGKILL)
        begun = time.monotonic()
        last = talk.hear().last
        assert time.monotonic() - begun < PATIENCE  # does not hang
        assert (last["error"]["code"], last["retry_after"]) == ("engine_unavailable", 1)
        assert talk.say().last["error"]["code"] == "engine_unavailable"
        wait_until_ready(url)
        assert talk.say().last["type"] == "done"


def test_sigterm_lets_streams_finish_and_leaves_nobody_behind(tmp_path: Path) -> None:
    with served(tmp_path) as (url, process), concurrent.futures.ThreadPoolExecutor(1) as pool:
        (worker,) = workers(process.pid)
        stream = pool.submit(speech, url, input=TEXT * 2)
        while 'cosyserve_running{model="test"} 1.0' not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert stream.result().status_code == 200
        assert process.wait(timeout=20) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_sigterm_while_a_model_is_loaded_leaves_nobody_behind(tmp_path: Path) -> None:
    env = os.environ | {"COSYSERVE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cosyserve", "serve", "--model", "test", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        while not (loading := workers(process.pid)):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert process.stdout
        assert process.stdout.read() == b""
    for worker in loading:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_a_taken_port_is_one_sentence(server: tuple[str, int], tmp_path: Path) -> None:
    port = server[0].rpartition(":")[2]
    env = os.environ | {"COSYSERVE_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "cosyserve", "serve", "--port", port],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "can't listen" in run.stderr
    assert "Traceback" not in run.stderr
