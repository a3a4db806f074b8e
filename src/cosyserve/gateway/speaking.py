"""A request's speech as bytes: chunks in, encoded audio out, the session closed at the end.

Knows no connection and no format.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Engine, SpeechRequest
from cosyserve.errors import AudioError, CosyError, WorkerError
from cosyserve.gateway.framing import Usage, Wire
from cosyserve.gateway.record import Record


class Speaking:
    def __init__(self, engine: Engine, request: SpeechRequest, wire: Wire, record: Record) -> None:
        self._engine = engine
        self._request = request
        self._wire = wire
        self._record = record
        self._playback = Playback()
        self._tokens = self._text_tokens = 0

    async def audio(self) -> AsyncGenerator[bytes, None]:
        """Bytes as they are made; the next chunk is asked for when these were taken."""
        begun = time.perf_counter()
        # The Protocol promises an iterator that can be closed; its type can't say so yet.
        chunks = self._engine.open(self._request)
        async with aclosing(chunks):
            async for chunk in chunks:
                self._take(chunk)
                data = await asyncio.to_thread(self._encode, chunk)
                if self._record.first_audio is None:
                    self._record.first_audio = time.perf_counter() - self._record.begun
                yield data
        if not self._record.finish:
            raise WorkerError("the speech ended before it was finished")
        if isinstance(self._request.text, str):  # else it took as long as the text did
            self._record.spoken = time.perf_counter() - begun
        yield await asyncio.to_thread(self._wire.finish, self.usage)

    @property
    def usage(self) -> Usage:
        """Of the text, only known at the end."""
        return Usage(
            input_tokens=self._text_tokens,
            output_tokens=self._tokens,
            total_tokens=self._text_tokens + self._tokens,
        )

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
