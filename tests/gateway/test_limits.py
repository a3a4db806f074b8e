"""Limits hold while a request runs, and refusals wait for nobody."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from cosyserve.gateway.bodies import MAX_NUMBERS, MAX_VALUES
from cosyserve.gateway.limits import Limits
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import SineEngine


def test_every_limit_is_a_setting() -> None:
    settings = Settings(
        max_body_bytes=2001,
        max_input_characters=2002,
        max_requests=2003,
        max_requests_per_key=2004,
        max_requests_per_minute=2010,
        max_characters_per_minute=2011,
        max_connections=2005,
        max_request_seconds=2006,
        max_idle_seconds=2007,
        shutdown_seconds=2008,
        voice_cache_bytes=2009,
    )
    assert Limits.of(settings) == Limits(
        body_bytes=2001,
        input_characters=2002,
        requests=2003,
        requests_per_key=2004,
        requests_per_minute=2010,
        characters_per_minute=2011,
        connections=2005,
        seconds=2006,
        idle_seconds=2007,
        shutdown_seconds=2008,
        voice_cache_bytes=2009,
    )


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    with serving(
        settings=Settings(max_body_bytes=10_000, max_input_characters=20, max_requests=2)
    ) as running:
        yield running


def test_announced_bodies(narrow: Running) -> None:
    response = narrow.say(input="a" * 20_000)
    assert response.status_code == 413
    assert "10000 bytes" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        (SPEECH, "application/json", 413),
        (SPEECH, "multipart/form-data; boundary=x", 413),
        ("/v1/audio/voices", "multipart/form-data; boundary=x", 413),
        ("/v1/audio/voices", "application/json", 413),
        (SPEECH, "text/plain", 415),
        ("/v1/nowhere", "application/json", 404),
    ],
)
def test_bodies_without_an_end(narrow: Running, path: str, kind: str, status: int) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        while True:
            read += 1000
            yield b"a" * 1000

    response = narrow.http.post(path, content=endless(), headers={"content-type": kind})
    assert response.status_code == status
    assert response.headers["connection"] == "close"
    assert read < 20_000_000


def test_the_length_of_the_text_is_the_operators(narrow: Running) -> None:
    assert "the limit is 20" in narrow.say(input="a" * 21).json()["error"]["message"]
    assert narrow.say(input="ä" * 20).status_code == 200


def test_too_many_at_once_are_refused_while_the_others_speak(narrow: Running) -> None:
    narrow.behave(held=True)
    with ThreadPoolExecutor(2) as pool:
        speaking = [pool.submit(narrow.say) for _ in range(2)]
        try:
            while narrow.engine.open_sessions < 2:
                time.sleep(0.001)
            for _ in range(5):
                response = narrow.say()
                assert response.status_code == 429
                assert response.headers["retry-after"] == "1"
                assert response.json()["error"]["type"] == "rate_limit_error"
            assert (narrow.engine.sessions, narrow.engine.open_sessions) == (2, 2)
            assert narrow.http.get("/health").status_code == 200
            assert narrow.http.get("/ready").status_code == 200
            assert 'reason="too_many_requests"' in narrow.http.get("/metrics").text
        finally:
            narrow.engine.held = False
    assert [answer.result().status_code for answer in speaking] == [200, 200]
    narrow.wait_until_idle()
    assert narrow.say().status_code == 200


def test_time_is_limited() -> None:
    with serving(SineEngine(first_delay=9.0), Settings(max_request_seconds=1.5)) as server:
        response = server.say()
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "timeout"
        server.wait_until_idle()

        server.behave(delay=9.0)
        body = {"input": "Hello.", "response_format": "pcm"}
        with pytest.raises(httpx.RemoteProtocolError):
            server.http.post(SPEECH, json=body, headers={"x-request-id": "late"})
        server.wait_until_idle()
        assert server.http.get(f"{SPEECH}/late").json()["finish_reason"] == "error"

        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        server.wait_until_idle()


def test_who_is_cut_off_is_told_where_there_are_events() -> None:
    with serving(SineEngine(delay=9.0), Settings(max_request_seconds=1.0)) as server:
        last = events(server.say(stream_format="sse", response_format="pcm").text)[-1]
        assert last["type"] == "error"
        assert last["error"]["code"] == "timeout"
        server.wait_until_idle()


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-1]]


def test_a_body_that_trickles_is_given_up() -> None:
    """Within the time that a request has it would keep a place that others want."""
    head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{"
    with (
        serving(settings=Settings(max_idle_seconds=1.0)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.sendall(head)
        for _ in range(4):
            time.sleep(0.2)
            slow.sendall(b" ")
        heard = b"".join(iter(lambda: slow.recv(10_000), b""))  # head and body may come apart
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b"send it within 1 s" in heard
        server.wait_until_idle()


@pytest.mark.parametrize(
    "path", [SPEECH, f"{SPEECH}/batch", "/v1/audio/voices", "/v2/models/a/infer"]
)
def test_json_of_countless_values_is_not_read(server: Running, path: str) -> None:
    """Everybody would wait for seconds."""
    most = MAX_NUMBERS if "v2" in path else MAX_VALUES
    body = b'{"input": "a", "x": [' + b"0," * most + b"0]}"
    answer = server.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "too_many_values"
    assert f"more than {most} values" in answer.json()["error"]["message"]


def test_a_second_type_of_a_body_hides_no_values(server: Running) -> None:
    body = b'{"input": "a", "x": [' + b"0," * MAX_VALUES + b"0]}"
    kinds = [("Content-Type", "application/json"), ("Content-Type", "text/plain")]
    answer = server.http.post(SPEECH, content=body, headers=kinds)
    assert answer.json()["error"]["code"] == "too_many_values"


@pytest.mark.parametrize("values", ["[],", '"a":0,'], ids=["lists", "fields"])
def test_countless_fields_are_not_read_where_numbers_are(server: Running, values: str) -> None:
    body = f'{{"inputs": [], "x": [{{{values * MAX_VALUES}}}]}}'
    headers = {"Content-Type": "application/json"}
    answer = server.http.post("/v2/models/a/infer", content=body, headers=headers)
    assert answer.json()["error"]["code"] == "too_many_values"


def test_a_form_has_no_countless_values_either(server: Running) -> None:
    form = {"input": "a", "lexicon": "[" + "[]," * MAX_VALUES + "[]]"}
    answer = server.http.post(SPEECH, data=form, files={"more": b"x"})
    assert answer.json()["error"]["code"] == "too_many_values"


def test_many_unknown_fields_are_passed_over(server: Running) -> None:
    unknown = {f"field_{number}": 1 for number in range(MAX_VALUES - 10)}
    assert server.say(**unknown).status_code == 200


def test_a_listener_who_does_not_read_is_given_up() -> None:
    minutes = SineEngine(chunks=40, chunk_tokens=250)
    with serving(minutes, Settings(max_request_seconds=1.0)) as server:
        body = b'{"model": "sine", "input": "a", "response_format": "pcm"}'
        head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            deaf.sendall(head + body)
            while not server.engine.open_sessions:
                time.sleep(0.001)
            server.wait_until_idle()
