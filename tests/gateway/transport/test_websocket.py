"""A WebSocket's handshake that can't be read is refused, and keeps no connection."""

from __future__ import annotations

import socket

import pytest

from tests.gateway.serving import SPEECH, Running
from tests.gateway.talking import STREAM

MANY = 200 * "X-A: b\r\n"
UPGRADE = (
    "HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"GET {STREAM} {UPGRADE}Content-Length: 1\r\n\r\n", 400),
        (f"GET {STREAM} {UPGRADE}Transfer-Encoding: chunked\r\n\r\n", 400),
        (f"POST {SPEECH} {UPGRADE}\r\n", 405),
        (f"GET {STREAM} {UPGRADE}Cookie: {9000 * 'a'}\r\n\r\n", 431),
        (f"GET {STREAM} {UPGRADE}{MANY}\r\n", 431),
        (f"GET {STREAM}?{9000 * 'a'} {UPGRADE}\r\n", 414),
    ],
    ids=["body", "chunks", "post", "header", "headers", "url"],
)
def test_a_handshake_that_cannot_be_read(server: Running, head: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(10)
        client.sendall(head.encode())
        heard = client.makefile("rb").read()  # until the server closes
    assert heard.startswith(f"HTTP/1.1 {status} ".encode())
    server.wait_until_idle()
