"""Clients that leave take their sessions along, whenever it is."""

from __future__ import annotations

import json
import random
import socket
import time
from pathlib import Path

import pytest

from tests.gateway.serving import SPEECH, Running
from tests.waiting import wait_until


def begin(server: Running, **fields: str) -> socket.socket:
    body = json.dumps({"model": "sine", "input": "Hello.", **fields}).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def open_files(server: Running) -> int:
    """But for the pipes to processes that encode."""
    return len(list(Path("/proc/self/fd").iterdir())) - 2 * len(server.app.state.encoders.processes)


def wait_for_session(server: Running) -> None:
    wait_until(lambda: server.engine.open_sessions)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_before_the_first_audio(server: Running, stream_format: str) -> None:
    server.behave(first_delay=60.0)
    with begin(server, stream_format=stream_format):
        wait_for_session(server)
    server.wait_until_idle()


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
@pytest.mark.parametrize("response_format", ["pcm", "opus"])
def test_while_the_engine_thinks(server: Running, stream_format: str, response_format: str) -> None:
    server.behave(delay=60.0)
    fields = {"stream_format": stream_format, "response_format": response_format}
    with begin(server, **fields) as client:
        assert client.recv(1000)
    server.wait_until_idle()


def test_in_the_middle_of_a_body(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
        time.sleep(0.05)
    server.wait_until_idle()
    assert server.engine.sessions == 0


def test_200_clients_at_random_points(server: Running) -> None:
    server.behave(chunks=10, chunk_tokens=5, first_delay=0.01, delay=0.01)
    server.say()
    server.wait_until_idle()
    files = open_files(server)
    chance = random.Random(0)
    formats = ["pcm", "mp3", "opus", "flac"]
    for _ in range(20):
        clients = [begin(server, response_format=chance.choice(formats)) for _ in range(10)]
        for client in clients:
            client.settimeout(chance.random() * 0.03)
            try:
                while client.recv(chance.randrange(1, 5000)) and chance.random() < 0.7:
                    pass
            except TimeoutError:
                pass
            client.close()
    server.wait_until_idle()
    assert server.engine.open_sessions == 0
    assert server.engine.sessions > 100
    time.sleep(0.1)
    assert open_files(server) <= files
