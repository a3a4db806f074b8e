"""How audio is framed in the body of a response: bare, or in Server-Sent Events."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from pydantic import BaseModel

from cosyserve.audio import MEDIA_TYPES, AudioFormat
from cosyserve.contracts import Floats
from cosyserve.gateway.encoding.encoders import Encoders, SpeechEncoder
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.speech.word_times import WordTimes

QUICK_BYTES = 1 << 18  # of audio in an event; all listeners wait while more are written


class Usage(BaseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


class Framing(Protocol):
    media_type: str

    @property
    def encoder(self) -> AbstractContextManager[None]:
        """Is entered by whoever speaks."""
        ...

    async def push(self, samples: Floats) -> bytes: ...

    async def finish(self, reason: str, usage: Usage) -> bytes:
        """What is left of the audio; `reason` says how it ended."""
        ...

    def words(self, times: WordTimes) -> bytes:
        """The bytes that tell when words are heard; none where this framing has no room."""
        ...

    def failure(self, refusal: Refusal) -> bytes | None:
        """The bytes that report an error after some audio; None: this framing has none."""
        ...


class RawFraming:
    def __init__(self, media_type: str, encoder: SpeechEncoder) -> None:
        self.media_type = media_type
        self.encoder = encoder

    async def push(self, samples: Floats) -> bytes:
        return await self.encoder.push(samples)

    async def finish(self, reason: str, usage: Usage) -> bytes:
        return await self.encoder.finish()

    def words(self, times: WordTimes) -> bytes:
        return b""

    def failure(self, refusal: Refusal) -> bytes | None:
        return None


class SSEFraming:
    media_type = "text/event-stream"

    def __init__(self, encoder: SpeechEncoder) -> None:
        self.encoder = encoder

    async def push(self, samples: Floats) -> bytes:
        audio = await self.encoder.push(samples)
        if len(audio) <= QUICK_BYTES:
            return _delta(audio)
        return await asyncio.to_thread(_delta, audio)

    async def finish(self, reason: str, usage: Usage) -> bytes:
        done = _event(
            {
                "type": "speech.audio.done",
                "finish_reason": reason,
                "usage": usage.model_dump(),
            }
        )
        return _delta(await self.encoder.finish()) + done

    def words(self, times: WordTimes) -> bytes:
        return _event({"type": "speech.audio.words"} | times.model_dump())

    def failure(self, refusal: Refusal) -> bytes | None:
        return _event({"type": "error"} | refusal.envelope.model_dump())


def framing_of(
    stream_format: Literal["audio", "sse"],
    audio_format: AudioFormat,
    sample_rate: int | None,
    encoders: Encoders,
) -> Framing:
    """A format that can't have the rate is an `AudioError`."""
    encoder = encoders.of(audio_format, sample_rate)
    if stream_format == "sse":
        return SSEFraming(encoder)
    return RawFraming(MEDIA_TYPES[audio_format], encoder)


def _delta(audio: bytes) -> bytes:
    if not audio:  # a codec may still be collecting its first frame
        return b""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def _event(data: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
