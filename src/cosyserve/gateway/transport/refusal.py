"""The whole answer to a request that no application is asked."""

from __future__ import annotations

from http import HTTPStatus


def refusal(status: HTTPStatus, message: str) -> bytes:
    """An HTTP response, after which the connection is closed."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(message.encode())}\r\n"
        "connection: close\r\n\r\n"
    )
    return (head + message).encode()
