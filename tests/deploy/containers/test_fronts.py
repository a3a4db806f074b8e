"""nginx and Envoy before two gateways: streams, events, WebSockets, leaving, an end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cosyserve.deploy.containers import fronts
from cosyserve.deploy.containers.fronts import Front
from cosyserve.errors import InputError
from tests.fronts import envoy_running, free_port, nginx_running, require_envoy, require_nginx
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.talking import talking
from tests.waiting import START_PATIENCE, wait_until

BODY = {"model": "sine", "input": "Hello.", "response_format": "pcm"}


@dataclass
class Fronted:
    http: httpx.Client
    both: list[Running]

    def held(self, held: bool) -> None:
        for server in self.both:
            server.engine.held = held

    def sessions(self) -> list[int]:
        return [server.engine.open_sessions for server in self.both]

    def wait_for(self, sessions: int) -> None:
        wait_until(lambda: sum(self.sessions()) == sessions)


@pytest.fixture(scope="module", params=["nginx", "envoy"])
def fronted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fronted]:
    envoy = request.param == "envoy"
    require_envoy() if envoy else require_nginx()
    folder, port = tmp_path_factory.mktemp("front"), free_port()
    with ExitStack() as stack:
        both = [stack.enter_context(serving()) for _ in range(2)]
        ports = [*(server.port for server in both), free_port()]  # nobody listens at the last
        front = Front(tuple(f"127.0.0.1:{place}" for place in ports), port=port)
        if envoy:
            text = fronts.envoy(front)
            address = stack.enter_context(envoy_running(text, folder, port))
        else:
            address = stack.enter_context(nginx_running(fronts.nginx(front), folder, port))
        http = httpx.Client(base_url=f"http://{address}", timeout=20)
        stack.enter_context(http)
        # Envoy has to see them first.
        wait_until(lambda: http.get("/ready").status_code == 200, seconds=START_PATIENCE)
        yield Fronted(http, both)


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    if "fronted" in request.fixturenames:
        for server in request.getfixturevalue("fronted").both:
            server.behave()


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_chunk_is_heard_before_the_next_is_made(fronted: Fronted, stream_format: str) -> None:
    fronted.held(True)
    body = {**BODY, "stream_format": stream_format}
    with fronted.http.stream("POST", SPEECH, json=body) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        assert sum(server.engine.made for server in fronted.both) == 1
        fronted.held(False)
        rest = b"".join(pieces)
    assert rest
    assert answer.status_code == 200


def test_a_websocket_speaks(fronted: Fronted) -> None:
    with talking(str(fronted.http.base_url).rstrip("/")) as talk:
        reply = talk.say("Hello.")
    assert reply.last["type"] == "done"
    assert len(reply.audio) == 2 * len(fronted.both[0].engine.samples)


def test_both_servers_have_work(fronted: Fronted) -> None:
    fronted.held(True)
    with ExitStack() as stack:
        for _ in range(6):
            answer = stack.enter_context(fronted.http.stream("POST", SPEECH, json=BODY))
            assert answer.status_code == 200
        assert min(fronted.sessions()) >= 1
        fronted.held(False)
    fronted.wait_for(0)


def test_a_listener_who_leaves_is_noticed(fronted: Fronted) -> None:
    fronted.held(True)
    with fronted.http.stream("POST", SPEECH, json=BODY) as answer:
        pieces = answer.iter_raw()  # one that is forgotten is closed
        assert next(pieces)
        fronted.wait_for(1)
    fronted.wait_for(0)


def test_a_long_body_goes_through(fronted: Fronted) -> None:
    body = {**BODY, "input": "x" * 3000, "instructions": "y" * 4000}
    assert fronted.http.post(SPEECH, json=body).status_code == 200


def test_a_server_about_to_end_gets_nothing_new(fronted: Fronted) -> None:
    """Runs last: a closed gate stays closed."""
    fronted.both[0].app.state.gate.close()
    answers = [fronted.http.post(SPEECH, json=BODY).status_code for _ in range(6)]
    assert answers == [200] * 6
    assert fronted.both[0].engine.sessions == 0


BOTH = Front(("127.0.0.1:8080",), ("127.0.0.1:8001", "127.0.0.2:8001"))


def test_nginx_takes_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\n{fronts.nginx(BOTH)}")
    command = [require_nginx(), "-t", "-p", str(tmp_path), "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "test is successful" in done.stderr


def test_envoy_takes_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "envoy.yaml"
    file.write_text(fronts.envoy(BOTH))
    command = [require_envoy(), "--mode", "validate", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ({}, "give --server HOST:PORT"),
        ({"servers": ("one",)}, "'one': write HOST:PORT"),
        ({"servers": ("one:99999",)}, "write HOST:PORT"),
        ({"servers": ("one:1; evil",)}, "write HOST:PORT"),
        ({"servers": ("one:8080", "one:8080")}, "one:8080 is given twice"),
        ({"servers": ("a:1",), "tritons": ("b:1",), "grpc_port": 8080}, "port 8080 is given twice"),
    ],
)
def test_nonsense_is_refused(front: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Front(**front)
