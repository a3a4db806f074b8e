"""Limits of a client's requests: bytes, characters, seconds, how many at once.

A request is also cancelled, at any point, once its client has left.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyserve.gateway.bodies import MAX_NUMBERS, MAX_VALUES, JSONBounds
from cosyserve.gateway.errors import ClientLeft, Refusal, retry_after
from cosyserve.gateway.keys import no_key
from cosyserve.gateway.telemetry.record import Record
from cosyserve.settings import Settings

MAX_TEXT = 4096  # characters of instructions, and of what a recording says
MIN_BODY_RATE = 16_384  # bytes a second; whoever is slower would keep a place that others want
KSERVE = "/v2/models/"
ALWAYS_ANSWERED = frozenset({"/health", "/ready", "/metrics"})


@dataclass(frozen=True)
class Limits:
    """The part of the settings that limits requests."""

    body_bytes: int
    input_characters: int
    requests: int  # at once; the engine has its own, shorter queue
    requests_per_key: int  # at once
    requests_per_minute: int  # of a key; 0: any number
    characters_per_minute: int
    connections: int  # WebSockets at once
    seconds: float  # of one request, its client's slowness included
    idle_seconds: float  # until a WebSocket's first message, and from text to text
    shutdown_seconds: float  # that running requests have left after SIGTERM
    voice_cache_bytes: int  # of voices learned from requests' own recordings

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(
            body_bytes=settings.max_body_bytes,
            input_characters=settings.max_input_characters,
            requests=settings.max_requests,
            requests_per_key=settings.max_requests_per_key,
            requests_per_minute=settings.max_requests_per_minute,
            characters_per_minute=settings.max_characters_per_minute,
            connections=settings.max_connections,
            idle_seconds=settings.max_idle_seconds,
            seconds=settings.max_request_seconds,
            shutdown_seconds=settings.shutdown_seconds,
            voice_cache_bytes=settings.voice_cache_bytes,
        )


class Gate:
    """Counts the requests being served, and admits no more of them once it is closed."""

    def __init__(self, capacity: int, per_key: int, keys: Container[str] = ()) -> None:
        """`keys`: the names of those that are valid, which may change."""
        self._capacity, self._per_key, self._keys = capacity, per_key, keys
        self._of_key: Counter[str] = Counter()
        self.inside = 0
        self.closed = False

    def close(self) -> None:
        self.closed = True

    @contextmanager
    def admit(self, key: str | None) -> Iterator[None]:
        """Serves a request inside the `with`; `key` is the name of its key, None without keys."""
        if self.closed:
            raise shutting_down()
        if key is not None and key not in self._keys:  # any more: connections outlive keys
            raise no_key()
        if self.inside >= self._capacity:
            raise too_many(f"{self._capacity} requests are being served")
        if key is not None and self._of_key[key] >= self._per_key:
            raise too_many(f"{self._per_key} requests with this key are being served")
        self.inside += 1
        if key is not None:
            self._of_key[key] += 1
        try:
            yield
        finally:
            self.inside -= 1
            if key is not None:
                self._of_key[key] -= 1


class Guard:
    """ASGI middleware that holds every request to the limits."""

    def __init__(self, app: ASGIApp, limits: Limits, gate: Gate) -> None:
        self._app = app
        self._limits = limits
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self._app(scope, receive, send)  # of a WebSocket, each utterance is a request
            return
        with self._gate.admit(scope["state"].get("key")):
            _check_announced(scope, self._limits.body_bytes)
            await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(receive, self._limits, scope)
        scope["state"]["interruption"] = self._interruption
        try:
            async with asyncio.timeout(self._limits.seconds) as time_left:
                watch = asyncio.create_task(body.expire_when_client_leaves(time_left))

                async def send_and_watch(message: Message) -> None:
                    if message["type"] == "http.response.body" and not message.get("more_body"):
                        watch.cancel()  # whoever leaves from here on has got everything
                    await send(message)

                try:
                    await self._app(scope, body.receive, send_and_watch)
                finally:
                    watch.cancel()
        except asyncio.CancelledError as error:  # by the server, at its end
            if not self._gate.closed:
                raise
            raise self._interruption() from error
        except Exception as error:
            if body.left:
                raise ClientLeft from error
            if time_left.expired():
                raise _too_slow(self._limits.seconds, body) from error
            raise

    def _interruption(self) -> Refusal:
        """Why a request is cancelled whose client is still there."""
        return (
            shutting_down() if self._gate.closed else took_too_long("request", self._limits.seconds)
        )


class Body:
    """The receiving side of a request: counts its bytes, and notices when its client leaves."""

    def __init__(self, receive: Receive, limits: Limits, scope: Scope) -> None:
        self._receive = receive
        self._limits = limits
        self._record: Record = scope["state"]["record"]
        self._json = _json_bounds(scope)
        self._began = asyncio.get_running_loop().time()
        self._taken = 0
        self._whole = asyncio.Event()

    @property
    def left(self) -> bool:
        return self._record.client_left

    @property
    def whole(self) -> bool:
        return self._whole.is_set()

    async def receive(self) -> Message:
        if self.whole:
            await asyncio.Future()  # the only message to come is the watch's business
        message = await self._next()
        if message["type"] == "http.disconnect":
            self._record.client_left = True
            raise ClientLeft
        data = message.get("body", b"")
        self._taken += len(data)
        if self._taken > self._limits.body_bytes:
            _too_large(self._limits.body_bytes)
        if self._json:
            self._json.take(data)
        if not message.get("more_body"):
            self._whole.set()
            self._record.body_pending = False
        return message

    async def _next(self) -> Message:
        seconds = self._limits.idle_seconds + self._taken / MIN_BODY_RATE
        try:
            async with asyncio.timeout_at(self._began + seconds):
                return await self._receive()
        except TimeoutError:
            message = (
                f"{self._taken} bytes of the body came in {seconds:.0f} s: send it within "
                f"{self._limits.idle_seconds:g} s, or {MIN_BODY_RATE} bytes of it a second"
            )
            raise Refusal(408, message, "timeout") from None

    async def expire_when_client_leaves(self, time_left: asyncio.Timeout) -> None:
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._record.client_left = True
        time_left.reschedule(0)


def shutting_down() -> Refusal:
    headers = {"Connection": "close"} | retry_after(1)
    return Refusal(503, "the server is shutting down", "shutting_down", headers=headers)


def took_too_long(what: str, seconds: float) -> Refusal:
    message = f"the {what} took more than {seconds:g} s, which is the limit"
    return Refusal(504, message, "timeout")


def too_many(what: str) -> Refusal:
    message = f"{what}, which is the limit; try later"
    return Refusal(429, message, "too_many_requests", headers=retry_after(1))


def _json_bounds(scope: Scope) -> JSONBounds | None:
    """None: the body is said to be something else."""
    kind = Headers(scope=scope).get("content-type", "application/json")
    if "json" not in kind.lower():
        return None
    return JSONBounds(MAX_NUMBERS if scope["path"].startswith(KSERVE) else MAX_VALUES)


def _check_announced(scope: Scope, limit: int) -> None:
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        _too_large(limit)


def _too_large(limit: int) -> NoReturn:
    message = f"the body is larger than the limit of {limit} bytes"
    raise Refusal(413, message, "body_too_large")


def _too_slow(seconds: float, body: Body) -> Refusal:
    if not body.whole:
        return Refusal(408, f"the body took more than {seconds:g} s", "timeout")
    return took_too_long("request", seconds)
