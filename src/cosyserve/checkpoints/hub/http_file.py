"""One file over HTTP: resumed where it broke off, checked, and only then given its name.

What a server sends is never trusted further than the size and sha256
that the caller has from a listing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cosyserve.errors import CheckpointError
from cosyserve.version import __version__

TIMEOUT = 20.0  # seconds, for every socket operation
ATTEMPTS = 5  # in a row that bring no byte
FIRST_PAUSE = 0.5  # seconds; doubles with every such attempt
CHUNK = 1 << 20


class UnreachableError(Exception):
    """The server can't be reached, breaks off or fails: another attempt may succeed."""


class RefusedError(Exception):
    """The server refuses the request: another attempt is of no use."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def stream(url: str, secrets: Mapping[str, str], start: int = 0) -> Iterator[bytes]:
    """The body from byte `start` on. `secrets` are headers that no redirect takes elsewhere."""
    request = Request(url, headers={"User-Agent": f"cosyserve/{__version__}"})
    for name, value in secrets.items():
        request.add_unredirected_header(name, value)
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            known = start
            if response.status == 206:
                sent = response.headers.get("Content-Range", "")
                if not sent.startswith(f"bytes {start}-"):
                    raise HTTPException(f"asked for bytes from {start} on, got {sent!r}")
                known = 0
            while chunk := response.read1(CHUNK):
                # A server without ranges sends again what we have.
                if fresh := chunk[known:]:
                    yield fresh
                known = max(0, known - len(chunk))
    except HTTPError as error:
        if error.code == 429 or error.code >= 500:
            raise UnreachableError(f"status {error.code}") from error
        raise RefusedError(error.code) from error
    except (OSError, HTTPException, ValueError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error


def download(
    url: str,
    target: Path,
    *,
    size: int,
    sha256: str,
    secrets: Mapping[str, str],
    advance: Callable[[int], object],
) -> None:
    """Downloads `target` and checks it. Until it is whole, it lies beside its place as `.part`."""
    part = _part(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as out:
        if out.tell() > size:  # of another version of the file
            out.truncate(out.seek(0))
        advance(out.tell())
        _receive(url, out, size, secrets, advance)
    if trouble := _trouble(part, size, sha256):
        part.unlink()
        raise CheckpointError(
            f"{target}: {trouble}; it was removed: damaged on its way, or changed at its source: "
            "run the same command again"
        )
    part.replace(target)


def _receive(
    url: str,
    out: BinaryIO,
    size: int,
    secrets: Mapping[str, str],
    advance: Callable[[int], object],
) -> None:
    idle = 0
    while (have := out.tell()) < size:
        reason = f"{url} ends before its {size} bytes"
        try:
            for chunk in stream(url, secrets, have):
                out.write(chunk)
                advance(len(chunk))
                if out.tell() > size:
                    return
        except UnreachableError as error:
            reason = str(error)
        if out.tell() == size:
            return
        idle = idle + 1 if out.tell() == have else 0
        if idle == ATTEMPTS:
            raise UnreachableError(reason)
        time.sleep(FIRST_PAUSE * 2**idle)


def _trouble(part: Path, size: int, sha256: str) -> str:
    if part.stat().st_size > size:
        return f"more than the listed {size} bytes arrived"
    if sha256 and (checksum := sha256_of(part)) != sha256:
        return f"what arrived has the checksum (sha256) {checksum}, listed is {sha256}"
    return ""


def arrived(target: Path) -> int:
    """The bytes of an unfinished download that are here."""
    part = _part(target)
    return part.stat().st_size if part.is_file() else 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
