"""One request to OpenAI's speech API, every piece of its answer timed as it arrives.

It asks for raw PCM, whose bytes tell their duration.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import numpy as np

from cosyserve.audio.silence import leading_silence
from cosyserve.bench.items import Item
from cosyserve.bench.playback import Arrival
from cosyserve.bench.sample import Failure, Sample
from cosyserve.contracts import SAMPLE_RATE
from cosyserve.errors import CosyError, InputError

SPEECH_PATH = "/v1/audio/speech"
PROBE_PATH = "/v1/models"
PROBE_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 2.0  # less than servers': a request must not meet a connection being closed
MAX_PORT = 65535
BYTES_PER_SECOND = 2 * SAMPLE_RATE
DETAIL_CHARACTERS = 300


class NoServerError(CosyError):
    """No server answers where one should be."""


@dataclass(frozen=True)
class Endpoint:
    """A server, and the model and the voice to ask it for."""

    url: str = "http://localhost:8080"  # with or without OpenAI's /v1
    model: str = "tts-1"
    voice: str = "default"
    api_key: str = field(default="", repr=False)
    timeout: float = 120.0  # seconds, for a whole request

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise InputError(f"the timeout must be more than 0 s, got {self.timeout:g}")
        try:
            if (httpx.URL(self.url).port or 0) > MAX_PORT:
                raise httpx.InvalidURL(f"a port is at most {MAX_PORT}")
        except httpx.InvalidURL as error:
            raise InputError(f"{self.url!r:.200} is not a URL: {error}") from error
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("--api-key holds characters that no header may have")

    @property
    def root(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1")

    def client(self) -> SpeechClient:
        return SpeechClient(self)


class SpeechClient:
    """Sends requests and times them.

    Requests in flight don't share an `httpx` client: its pool searches all connections for each
    request, and under a crowd that search is all one would measure.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._tls = httpx.create_ssl_context()
        self._idle: list[httpx.AsyncClient] = []
        self._begun = time.perf_counter()

    async def check_server(self) -> None:
        try:
            async with self._connection() as http:
                await http.get(PROBE_PATH, timeout=PROBE_SECONDS)
        except httpx.TransportError as error:
            raise NoServerError(
                f"no server answers at {self._endpoint.root} ({_reason(error)}): "
                "start it with `cosyserve serve`, or give another URL"
            ) from error

    async def aclose(self) -> None:
        for http in self._idle:
            await http.aclose()

    async def speak(self, item: Item) -> tuple[Sample, bytes]:
        """The times of a request, and its audio. A request that fails is a sample, too."""
        body = self._body(item)
        pieces: list[bytes] = []
        arrivals: list[Arrival] = []
        failure = None
        sent = time.perf_counter()
        try:
            async with (
                asyncio.timeout(self._endpoint.timeout),
                self._connection() as http,
                http.stream("POST", SPEECH_PATH, content=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    message = _message(await response.aread())
                    failure = Failure(f"HTTP {response.status_code}", message)
                else:
                    async for piece in response.aiter_raw():
                        at = time.perf_counter() - sent
                        arrivals.append(Arrival(at, len(piece) / BYTES_PER_SECOND))
                        pieces.append(piece)
                    if not pieces:
                        failure = Failure("empty", "an answer without audio")
        except (TimeoutError, httpx.TimeoutException):
            failure = Failure("timeout", f"not finished after {self._endpoint.timeout:g} s")
        except httpx.ConnectError as error:
            failure = Failure("refused", _reason(error))
        except httpx.TransportError as error:
            failure = Failure("cut off", _reason(error))
        total = time.perf_counter() - sent
        audio = b"".join(pieces)
        silence = await asyncio.to_thread(leading_silence_seconds, audio)
        sample = Sample(item.id, sent - self._begun, total, tuple(arrivals), failure, silence)
        return sample, audio

    def _body(self, item: Item) -> bytes:
        fields = {
            "model": self._endpoint.model,
            "voice": self._endpoint.voice,
            "input": item.text,
            "response_format": "pcm",
        }
        if item.reference is not None:
            fields["reference_audio"] = item.reference.audio
            fields["reference_text"] = item.reference.text
        return json.dumps(fields).encode()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[httpx.AsyncClient]:
        """The idle connection that was used last, or a new one."""
        http = self._idle.pop() if self._idle else self._open()
        try:
            yield http
        finally:
            self._idle.append(http)

    def _open(self) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        return httpx.AsyncClient(
            base_url=self._endpoint.root,
            headers=headers,
            verify=self._tls,
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
            timeout=None,
        )


def leading_silence_seconds(pcm: bytes) -> float | None:
    """Of 16-bit samples; None: all of it is silent."""
    samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / 32768
    silent = leading_silence(samples)
    return None if silent is None else silent / SAMPLE_RATE


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _message(body: bytes) -> str:
    """The message of OpenAI's error envelope, or what there is instead."""
    try:
        text = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", "replace")
    return text[:DETAIL_CHARACTERS]
