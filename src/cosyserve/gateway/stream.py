"""Speech on its way to one listener: chunks in, encoded bytes out, the session closed at the end.

Knows no route and no format.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cosyserve.contracts import (
    SAMPLE_RATE,
    AudioChunk,
    AudioError,
    CosyError,
    Engine,
    SpeechRequest,
    WorkerError,
)
from cosyserve.gateway.errors import refusal
from cosyserve.gateway.trace import Record
from cosyserve.gateway.wire import Usage, Wire


class SpeechStream(Response):
    """Answers only once there is audio, so that whatever fails before is an HTTP error.

    What fails later is told in the wire's own way, or cuts the connection: a listener must never
    take half of a speech for the whole.
    """

    def __init__(self, engine: Engine, request: SpeechRequest, wire: Wire, record: Record) -> None:
        super().__init__(media_type=wire.media_type)
        del self.headers["content-length"]
        self._engine = engine
        self._request = request
        self._wire = wire
        self._record = record
        self._playback = Playback()
        self._tokens = self._text_tokens = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        try:
            await self._speak(send)
            self._record.spoken = time.perf_counter() - begun
            await self._send(
                send, await asyncio.to_thread(self._wire.finish, self._usage), last=True
            )
        except Exception as error:
            told = self._wire.failure(refusal(error)) if self._record.status else None
            if told is not None:
                await self._send(send, told, last=True)
            raise

    async def _speak(self, send: Send) -> None:
        # The Protocol promises an iterator that can be closed; its type can't say so yet.
        chunks = self._engine.open(self._request)
        async with aclosing(chunks):
            async for chunk in chunks:
                self._take(chunk)
                data = await asyncio.to_thread(self._encode, chunk)
                if self._record.first_audio is None:
                    self._record.first_audio = time.perf_counter() - self._record.begun
                    await send(
                        {
                            "type": "http.response.start",
                            "status": self.status_code,
                            "headers": self.raw_headers,
                        }
                    )
                await self._send(send, data)
        if not self._record.finish:
            raise WorkerError("the speech ended before it was finished")

    def _take(self, chunk: AudioChunk) -> None:
        if chunk.finish in ("error", "cancelled"):
            raise WorkerError(f"the speech was not finished: {chunk.finish}")
        self._record.finish = chunk.finish or ""
        self._tokens += chunk.tokens
        self._text_tokens += chunk.text_tokens
        seconds = len(chunk.samples) / SAMPLE_RATE
        self._playback.take(seconds, time.perf_counter())
        self._record.audio_seconds += seconds
        self._record.underruns = self._playback.underruns

    def _encode(self, chunk: AudioChunk) -> bytes:
        try:
            return self._wire.push(chunk.samples)
        except AudioError as error:  # not the client's audio: an AudioError would blame it
            raise CosyError(f"the model made audio that can't be encoded: {error}") from error

    @property
    def _usage(self) -> Usage:
        return Usage(
            input_tokens=self._text_tokens,
            output_tokens=self._tokens,
            total_tokens=self._text_tokens + self._tokens,
        )

    async def _send(self, send: Send, data: bytes, last: bool = False) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": not last})


class Playback:
    """A listener who plays from the first chunk on."""

    def __init__(self) -> None:
        self._silent_from: float | None = None
        self.underruns = 0

    def take(self, seconds: float, now: float) -> None:
        if self._silent_from is None:
            self._silent_from = now
        elif now > self._silent_from:
            self.underruns += 1
        self._silent_from = max(self._silent_from, now) + seconds
