"""The server process: its first line, its end, a port that is taken."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from cosyserve.errors import InputError
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.serving import SPEECH
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import close_code, talking
from tests.waiting import PATIENCE

PROGRAM = """
import sys, uvloop
from pathlib import Path
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.sine_engine import SineEngine

engine = SineEngine({behaviour})
limits = Limits.of(Settings(shutdown_seconds=1.5))
uvloop.run(serve(engine, open_store("none"), "127.0.0.1", 0, limits))
print("closed" if engine.closed else "left open", engine.open_sessions)
"""


@contextmanager
def process(behaviour: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(behaviour=behaviour)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with child:
        assert child.stdout
        try:
            yield child, child.stdout.readline()
        finally:
            child.kill()


def address(first_line: str) -> str:
    match = re.match(r"listening on (http://127\.0\.0\.1:\d+)", first_line)
    assert match, first_line
    return match[1]


def ended(child: subprocess.Popen[str]) -> str:
    code = child.wait(PATIENCE)
    assert code == 0
    assert child.stdout
    return child.stdout.read().strip()


def test_running_streams_finish_and_new_ones_are_refused() -> None:
    lengths: list[int] = []
    with process("chunks=5, delay=0.2") as (child, first_line):
        url = address(first_line)
        client = httpx.Client(base_url=url)
        fields = {"model": "sine", "input": "Hello.", "response_format": "pcm"}

        def listen() -> None:
            lengths.append(len(httpx.post(url + SPEECH, json=fields).content))

        listener = threading.Thread(target=listen)
        listener.start()
        while 'cosyserve_running{model="sine"} 1.0' not in client.get("/metrics").text:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        while client.get("/ready").status_code == 200:
            time.sleep(0.01)
        for refused in (client.post(SPEECH, json=fields), httpx.post(url + SPEECH, json=fields)):
            assert refused.status_code == 503
            assert refused.headers["connection"] == "close"
            assert refused.json()["error"]["code"] == "shutting_down"
        listener.join()
        assert ended(child) == "closed 0"
    assert lengths == [5 * 10 * 960 * 2]


def test_a_stream_that_takes_too_long_is_cut() -> None:
    with process("chunks=2, delay=60.0") as (child, first_line):
        url = address(first_line)
        fields = {"model": "sine", "input": "Hello.", "response_format": "pcm"}
        refused: list[httpx.Response] = []

        def ask_for_many() -> None:
            refused.append(httpx.post(f"{url}{SPEECH}/batch", json={"items": [fields]}, timeout=10))

        many = threading.Thread(target=ask_for_many)
        with httpx.stream("POST", url + SPEECH, json=fields, timeout=10) as response:
            many.start()
            while 'cosyserve_running{model="sine"} 2.0' not in httpx.get(f"{url}/metrics").text:
                time.sleep(0.01)
            child.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                response.read()
        many.join()
        assert ended(child) == "closed 0"
        assert child.stderr
        lines = [json.loads(line) for line in child.stderr.read().splitlines()]
    told = refused[0].json()["error"]["code"]
    assert (refused[0].status_code, told) == (503, "shutting_down")
    speech = {line["method"]: line for line in lines if line["path"].startswith(SPEECH)}
    assert {line["error"] for line in lines if line["path"].startswith(SPEECH)} == {"shutting_down"}
    assert speech["BATCH"]["status"] == 503


def test_a_stream_that_is_cut_says_why_where_there_are_events() -> None:
    pcm = {"response_format": "pcm", "stream_format": "sse"}
    fields = {"model": "sine", "input": "Hello."} | pcm
    with process("chunks=2, delay=60.0") as (child, first_line):
        url = address(first_line) + SPEECH
        with httpx.stream("POST", url, json=fields, timeout=10) as response:
            child.send_signal(signal.SIGTERM)
            last = response.read().decode().split("\n\n")[-2]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert ended(child) == "closed 0"


def test_websockets_finish_and_go_away() -> None:
    with (
        process("chunks=5, delay=0.2") as (child, first_line),
        talking(address(first_line)) as idle,
        talking(address(first_line)) as busy,
        talking(address(first_line)) as late,
    ):
        busy.start()
        busy.text("Hello.")
        busy.hear("started")
        late.start()
        late.text("Hello.")  # and no end
        late.hear("started")
        child.send_signal(signal.SIGTERM)
        assert close_code(idle.socket) == 1001
        busy.text(" And more.")
        busy.send("end")
        reply = busy.hear()
        assert (reply.last["finish_reason"], len(reply.audio)) == ("stop", 5 * 10 * 960 * 2)
        assert close_code(busy.socket) == 1001
        with pytest.raises(InvalidStatus) as refused, talking(address(first_line)):
            pass
        assert refused.value.response.status_code == 503
        assert late.error()["code"] == "shutting_down"
        assert close_code(late.socket) == 1001
        assert ended(child) == "closed 0"


def test_a_test_model_is_named_at_the_start_and_control_c_is_no_failure() -> None:
    with process("speech=False") as (child, first_line):
        assert first_line.endswith("(test model: not speech)\n")
        child.send_signal(signal.SIGINT)
        assert ended(child) == "closed 0"


def test_the_log_is_one_json_object_a_request() -> None:
    with process("") as (child, first_line):
        answer = httpx.get(address(first_line) + "/health")
        child.terminate()
        ended(child)
        assert child.stderr
        (line,) = child.stderr.read().splitlines()
    assert json.loads(line)["request_id"] == answer.headers["x-request-id"]


def test_a_port_that_is_taken_is_one_clear_error(tmp_path: Path) -> None:
    engine = SineEngine()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use"):
            asyncio.run(
                serve(engine, open_store(str(tmp_path)), "127.0.0.1", port, Limits.of(Settings()))
            )
    assert engine.closed
