"""Frames below the messages, from a client that doesn't read."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from tests.gateway.serving import Running
from tests.gateway.talking import STREAM

UPGRADE = (
    f"GET {STREAM} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()
PING, TEXT, CONTINUED, LAST = 0x89, 0x01, 0x00, 0x80


def frame(kind: int, data: bytes) -> bytes:
    """Masked with zeros."""
    assert len(data) < 126
    return bytes([kind, 0x80 | len(data), 0, 0, 0, 0]) + data


@pytest.fixture
def raw(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(UPGRADE)
        assert client.recv(10_000).startswith(b"HTTP/1.1 101 ")
        client.settimeout(2)
        yield client


def test_pings_without_end(server: Running, raw: socket.socket) -> None:
    with contextlib.suppress(TimeoutError):  # not to read any more would be as good
        for _ in range(500):
            raw.sendall(500 * frame(PING, b"x" * 125))  # 33 megabytes
    kept = [connection.transport.get_write_buffer_size() for connection in server.sockets]  # type: ignore[attr-defined]
    assert max(kept) < 1_000_000
    assert server.say().status_code == 200


def test_a_message_in_countless_frames(server: Running, raw: socket.socket) -> None:
    raw.sendall(frame(TEXT, b'{"type"') + 50_000 * frame(CONTINUED, b"") + frame(PING, b""))
    assert raw.recv(100) == b"\x8a\0"  # all before it was received
    assert max(len(getattr(connection, "frames", "")) for connection in server.sockets) == 1
    raw.sendall(frame(LAST | CONTINUED, b': "end"}'))
    answer = raw.recv(10_000)
    assert json.loads(answer[answer.index(b"{") :])["error"]["code"] == "out_of_order"
