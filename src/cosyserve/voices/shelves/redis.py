"""Voice files in a Redis server, shared by many hosts.

A voice is one key, and a change is one command, so that hosts never see half of a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from cosyserve.errors import InputError, StoreError, VoiceError

if TYPE_CHECKING:
    import redis

SCHEMES = ("redis://", "rediss://", "unix://")
PREFIX = "cosyserve:voice:"
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
SCAN_COUNT = 1000


class RedisShelf:
    """Implements `shelf.Shelf`."""

    def __init__(self, url: str, prefix: str = PREFIX) -> None:
        self._url, self._prefix = url, prefix
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise InputError(
                "a voice store in Redis needs the package 'redis': pip install redis"
            ) from error
        self._errors = redis.RedisError, OSError
        try:
            self._client: redis.Redis = redis.Redis.from_url(
                url,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                retry=Retry(NoBackoff(), 1),  # once: a server that came back closed our connections
            )
        except ValueError as error:
            raise InputError(f"not the URL of a Redis server: {error}") from error

    def names(self) -> list[str]:
        with self._reachable():
            keys = self._client.scan_iter(f"{self._prefix}*", count=SCAN_COUNT, _type="string")
            return [cast(bytes, key).decode(errors="replace")[len(self._prefix) :] for key in keys]

    def read(self, name: str, max_bytes: int) -> bytes | None:
        with self._reachable():
            return cast(bytes, self._client.getrange(self._prefix + name, 0, max_bytes - 1)) or None

    def write(self, name: str, data: bytes, *, replace: bool) -> bool:
        with self._reachable():
            return bool(self._client.set(self._prefix + name, data, nx=not replace))

    def rewrite(self, name: str, data: bytes) -> bool:
        with self._reachable():
            return bool(self._client.set(self._prefix + name, data, xx=True))

    def remove(self, name: str) -> bool:
        with self._reachable():
            return bool(self._client.delete(self._prefix + name))

    def where(self, name: str) -> str:
        return f"Redis key {self._prefix}{name}"

    def beside(self, kind: str) -> RedisShelf:
        return RedisShelf(self._url, f"cosyserve:{kind}:")

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if str(error).startswith("WRONGTYPE"):
                raise VoiceError("there is something else than a voice under that name") from error
            raise StoreError(f"the voice store can't be used now: {error}") from error
