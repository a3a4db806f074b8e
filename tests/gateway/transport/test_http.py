"""Heads of requests come to an end, in bytes and in seconds, whoever sends them."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator

import pytest

from cosyserve.gateway.transport import http
from cosyserve.gateway.transport.http import HEAD_BYTES
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.talking import talking

ENOUGH = 1024 * HEAD_BYTES  # what a server takes that has no limit, and the kernel's buffers don't
BODY = json.dumps({"input": "a", "response_format": "pcm"}).encode()
POST = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\n"
CHUNKED = f"{POST}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
FRAMED = b"%x\r\n%b\r\n" % (len(BODY), BODY)


def connect(server: Running) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port))
    client.settimeout(10)
    return client


def everything(client: socket.socket) -> bytes:
    """What it is sent until the server closes."""
    heard = b""
    try:
        while data := client.recv(100_000):
            heard += data
    except ConnectionResetError:  # there was more to read for the server
        pass
    return heard


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"GET / HTTP/1.1\r\n", b"X-A: b\r\n" * 1000),
        (b"GET / HTTP/1.1\r\nX-A: ", b"b" * 8000),
        (b"GET /", b"a" * 8000),
        (b"", b"\r\n" * 4000),
        (CHUNKED + FRAMED + b"0\r\n", b"X-A: b\r\n" * 1000),
        (CHUNKED + b"1;a=", b"b" * 8000),
    ],
    ids=["headers", "header", "url", "nothing", "trailers", "extension"],
)
def test_heads_without_an_end(server: Running, start: bytes, more: bytes) -> None:
    with connect(server) as client, pytest.raises(OSError, match=r"reset|Broken pipe"):
        client.sendall(start + more * (ENOUGH // len(more)))
    server.wait_until_idle()
    assert server.say().status_code == 200


def test_who_sends_a_large_head_is_told(server: Running) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nX-A: " + b"b" * HEAD_BYTES)
        heard = everything(client)
    assert heard.startswith(b"HTTP/1.1 431 ")
    assert b"larger than 65536 bytes: send shorter headers" in heard


def test_a_head_just_below_the_limit_is_read(server: Running) -> None:
    headers = {"X-A": "b" * (HEAD_BYTES - 1000)}
    for _ in range(3):  # of one connection
        assert server.http.get("/health", headers=headers).status_code == 200


OFFER = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAA\r\n"
JSON = "Content-Type: application/json\r\n"
LENGTH = f"{POST}{OFFER}{JSON}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
CHUNKS = f"{POST}{JSON}{OFFER}Transfer-Encoding: chunked\r\n\r\n".encode() + FRAMED + b"0\r\n\r\n"
GET = f"GET /health HTTP/1.1\r\nHost: x\r\n{OFFER}\r\n".encode()
LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("offer", [LENGTH, CHUNKS, GET])
def test_an_offer_of_another_protocol_is_declined(server: Running, offer: bytes, size: int) -> None:
    whole = offer + offer + LAST
    with connect(server) as client:
        for start in range(0, len(whole), size):
            client.sendall(whole[start : start + size])
        heard = everything(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", heard) == 3 * [b"200"]
    server.wait_until_idle()


def test_a_body_behind_an_offer_is_no_request(server: Running) -> None:
    offer = f"{POST}{OFFER}{JSON}Content-Length: {len(LAST)}\r\n\r\n".encode()
    with connect(server) as client:
        client.sendall(offer + LAST + LAST)
        heard = everything(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", heard) == [b"400", b"200"]


def test_a_tunnel_is_refused(server: Running) -> None:
    with connect(server) as client:
        client.sendall(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert everything(client).startswith(b"HTTP/1.1 40")


def test_a_large_body_is_no_head(server: Running) -> None:
    body = json.dumps({"input": "Hello.", "unknown": "x" * 4 * HEAD_BYTES}).encode()
    pieces = [body[start : start + 5000] for start in range(0, len(body), 5000)]

    def slowly() -> Iterator[bytes]:
        yield from pieces

    kind = {"Content-Type": "application/json"}
    assert server.http.post(SPEECH, content=slowly(), headers=kind).status_code == 200
    assert server.http.post(SPEECH, content=body, headers=kind).status_code == 200


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(http, "HEAD_SECONDS", 1.0)
    with serving(settings=Settings()) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /health HTTP/1.1\r\nHost:", b"\r\n"])
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_heads_that_never_come(hasty: Running, before: bytes, sent: bytes) -> None:
    with connect(hasty) as client:
        if before:
            client.sendall(before)
            heard = b""
            while not heard.endswith(b"}"):
                data = client.recv(10_000)
                assert data, "it is cut off"
                heard += data
            assert heard.startswith(b"HTTP/1.1 200 ")
        client.sendall(sent)
        assert everything(client) == b""


def test_who_listens_or_is_connected_is_not_hurried(hasty: Running) -> None:
    hasty.behave(chunks=8, delay=0.3)
    request = f"{POST}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    with connect(hasty) as client:
        client.sendall(request.encode() + BODY + b"GET /heal")  # the head of the next, in part
        heard = b""
        while not heard.endswith(b"0\r\n\r\n"):
            data = client.recv(100_000)
            assert data, "it is cut off"
            heard += data
        client.sendall(b"th HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100_000).startswith(b"HTTP/1.1 200 ")


def test_a_websocket_is_no_head(hasty: Running) -> None:
    with talking(hasty.url) as talk:
        time.sleep(2 * http.HEAD_SECONDS)
        assert talk.say().last["finish_reason"] == "stop"
