"""What gateway and worker say to each other, and how it travels: length, then msgpack.

Knows no process and no torch. Arrays travel as the bytes of float32, voices as voice files.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import astuple
from typing import Any

import msgspec
import numpy as np

from cosyserve.contracts import (
    AudioChunk,
    FinishReason,
    Mode,
    Pushed,
    Recording,
    Sampling,
    SpeechRequest,
    Voice,
)
from cosyserve.errors import CosyError, OverloadError
from cosyserve.voices.mirror import voice_key

LENGTH = struct.Struct("<I")


class Open(msgspec.Struct, tag=True):
    """`voice_key` names a voice that came before; `voice` brings one along."""

    id: int
    text: str | None  # None: it arrives piece by piece
    voice_key: str
    voice: bytes | None
    mode: str
    instruction: str
    speed: float
    seed: int
    stream: bool
    normalize: bool
    sampling: tuple[float, int, int, float] | None
    source: bytes | None
    language: str

    @classmethod
    def of(cls, number: int, request: SpeechRequest, voice: bytes | None) -> Open:
        return cls(
            number,
            request.text if isinstance(request.text, str) else None,
            voice_key(request.voice),
            voice,
            request.mode,
            request.instruction,
            request.speed,
            request.seed,
            request.stream,
            request.normalize,
            None if request.sampling is None else astuple(request.sampling),
            None if request.source is None else request.source.astype(np.float32).tobytes(),
            request.language,
        )

    def request(self, voice: Voice) -> SpeechRequest:
        source = None if self.source is None else np.frombuffer(self.source, np.float32)
        return SpeechRequest(
            Pushed() if self.text is None else self.text,
            voice,
            Mode(self.mode),
            self.instruction,
            self.speed,
            self.seed,
            self.stream,
            self.normalize,
            None if self.sampling is None else Sampling(*self.sampling),
            source,
            self.language,
        )


class Push(msgspec.Struct, tag=True):
    """More text of a request whose text arrives piece by piece."""

    id: int
    text: str


class End(msgspec.Struct, tag=True):
    """That text is over."""

    id: int


class Cancel(msgspec.Struct, tag=True):
    id: int


class Embed(msgspec.Struct, tag=True):
    id: int
    samples: bytes
    rate: int
    text: str
    name: str
    language: str
    consent: str

    @classmethod
    def of(cls, number: int, recording: Recording) -> Embed:
        texts = recording.text, recording.name, recording.language, recording.consent
        return cls(number, recording.samples.tobytes(), recording.rate, *texts)

    def recording(self) -> Recording:
        samples = np.frombuffer(self.samples, np.float32)
        return Recording(samples, self.rate, self.text, self.name, self.language, self.consent)


class Ready(msgspec.Struct, tag=True):
    name: str
    family: str
    fingerprint: str
    speech: bool
    voices: dict[str, bytes]
    takes_pieces: bool


class Chunk(msgspec.Struct, tag=True):
    id: int
    samples: bytes
    index: int
    start: float
    tokens: int
    finish: FinishReason | None
    text_tokens: int

    @classmethod
    def of(cls, number: int, chunk: AudioChunk) -> Chunk:
        data = chunk.samples.astype(np.float32, copy=False).tobytes()
        return cls(
            number,
            data,
            chunk.index,
            chunk.start,
            chunk.tokens,
            chunk.finish,
            chunk.text_tokens,
        )

    def chunk(self) -> AudioChunk:
        samples = np.frombuffer(self.samples, np.float32)
        return AudioChunk(
            samples, self.index, self.start, self.tokens, self.finish, self.text_tokens
        )


class Failed(msgspec.Struct, tag=True):
    id: int
    kind: str
    message: str
    retry_after: float = 0.0

    @classmethod
    def of(cls, number: int, error: CosyError) -> Failed:
        wait = error.retry_after if isinstance(error, OverloadError) else 0.0
        return cls(number, error.kind, str(error), wait)

    def error(self) -> CosyError:
        return CosyError.of_kind(self.kind, self.message, self.retry_after)


class Embedded(msgspec.Struct, tag=True):
    id: int
    voice: bytes


class Stats(msgspec.Struct, tag=True):
    waiting: int
    running: int
    sessions: int
    tokens: int
    lm_seconds: float
    token2wav_seconds: float


ToWorker = Open | Push | End | Cancel | Embed
FromWorker = Ready | Chunk | Failed | Embedded | Stats

to_worker = msgspec.msgpack.Decoder(ToWorker)
from_worker = msgspec.msgpack.Decoder(FromWorker)


def frame(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


async def next_body(reader: asyncio.StreamReader) -> bytes:
    """Of the next frame; `asyncio.IncompleteReadError` when the far end has gone."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)
