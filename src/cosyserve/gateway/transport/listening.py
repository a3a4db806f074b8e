"""Listening sockets, and what clients speak to them: TLS or not, directly or by a proxy."""

from __future__ import annotations

import errno
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import InputError
from cosyserve.settings import Settings

BACKLOG = 2048
FILES = 1 << 16  # that may be open: a socket for each client, and more for its speech


@dataclass(frozen=True)
class Transport:
    """How the HTTP API is reached."""

    certfile: str = ""  # "": without TLS
    keyfile: str = ""
    trusted_proxies: str = "127.0.0.1"

    @classmethod
    def of(cls, settings: Settings) -> Transport:
        """What can't be used is an error, which is better known before a model is loaded."""
        certfile, keyfile = _file(settings.ssl_certfile), _file(settings.ssl_keyfile)
        if keyfile and not certfile:
            raise InputError("--ssl-keyfile is the key of a certificate: give --ssl-certfile, too")
        if certfile:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                    certfile, keyfile or None
                )
            except OSError as error:  # as all errors of TLS are
                raise InputError(f"no TLS with the certificate {certfile}: {error}") from error
        return cls(certfile, keyfile, settings.trusted_proxies)


def allow_files() -> None:
    """As many as the system lets a process have, up to `FILES`; it begins with fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # macOS has further limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_free(host: str, port: int) -> None:
    """That somebody else listens there is better known before a model is loaded."""
    with _told(host, port, "--port"), socket.socket(_family(host)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener will have it
        trial.bind((host, port))


def listen(host: str, port: int, seconds: float, option: str = "--port") -> socket.socket:
    """The listening socket; it drops clients that read nothing for so many seconds."""
    with _told(host, port, option):
        listener = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
    if sys.platform == "linux":  # else a closed connection waits for its deaf client for ever
        milliseconds = int(1000 * seconds)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextmanager
def _told(host: str, port: int, option: str) -> Iterator[None]:
    """Errors say what to change."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            option = "--host"
        raise InputError(
            f"can't listen on {host} port {port}: {error.strerror}; choose another with {option}"
        ) from error


def _file(path: str) -> str:
    return str(Path(path).expanduser()) if path else ""
