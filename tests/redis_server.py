"""A real Redis server of our own, which can be ended and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until


class RedisServer:
    """Keeps what it holds over an end in order, not over a kill."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        options = ["--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--save", "3600 1000000", "--appendonly", "no"],
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._answers, "redis-server does not start")

    def end(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            try:
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                return client.recv(5) == b"+PONG"
            except OSError:
                return False


@contextmanager
def redis_running(folder: Path) -> Iterator[RedisServer]:
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server: apt-get install redis-server")
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.end()
