"""Listening sockets."""

from __future__ import annotations

import socket
import sys

from cosyserve.errors import InputError

BACKLOG = 2048


def listen(host: str, port: int, seconds: float, option: str = "--port") -> socket.socket:
    """The listening socket; it drops clients that read nothing for so many seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"can't listen on {host} port {port}: {error.strerror}; choose another with {option}"
        ) from error
    if sys.platform == "linux":  # else a closed connection waits for its deaf client for ever
        milliseconds = int(1000 * seconds)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return listener
