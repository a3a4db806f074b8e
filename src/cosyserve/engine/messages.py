"""What gateway and worker say to each other, and how it travels: length, then msgpack.

Knows no process and no torch. Arrays travel as the bytes of float32, voices as voice files.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from cosyserve.contracts import (
    AudioChunk,
    AudioError,
    CheckpointError,
    CosyError,
    FinishReason,
    InputError,
    Mode,
    OverloadError,
    Sampling,
    SpeechRequest,
    VoiceError,
    WorkerError,
)
from cosyserve.voices import file as voice_file

LENGTH = struct.Struct("<I")
KINDS = {
    kind.__name__: kind
    for kind in (CosyError, InputError, AudioError, CheckpointError, VoiceError, WorkerError)
}


class Open(msgspec.Struct, tag=True):
    id: int
    text: str
    voice: bytes
    mode: str
    instruction: str
    speed: float
    seed: int
    stream: bool
    normalise: bool
    top_p: float
    top_k: int
    window: int
    max_repeats: float
    source: bytes | None

    @classmethod
    def of(cls, number: int, request: SpeechRequest) -> Open:
        if not isinstance(request.text, str):
            raise InputError("text that arrives piece by piece can't be sent to a worker")
        return cls(
            number,
            request.text,
            voice_file.to_bytes(request.voice),
            request.mode,
            request.instruction,
            request.speed,
            request.seed,
            request.stream,
            request.normalise,
            request.sampling.top_p,
            request.sampling.top_k,
            request.sampling.window,
            request.sampling.max_repeats,
            None if request.source is None else request.source.astype(np.float32).tobytes(),
        )

    def request(self) -> SpeechRequest:
        source = None if self.source is None else np.frombuffer(self.source, np.float32)
        return SpeechRequest(
            self.text,
            voice_file.from_bytes(self.voice, "request"),
            Mode(self.mode),
            self.instruction,
            self.speed,
            self.seed,
            self.stream,
            self.normalise,
            Sampling(self.top_p, self.top_k, self.window, self.max_repeats),
            source,
        )


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


class Ready(msgspec.Struct, tag=True):
    name: str
    family: str
    fingerprint: str
    speech: bool
    voices: dict[str, bytes]


class Chunk(msgspec.Struct, tag=True):
    id: int
    samples: bytes
    index: int
    start: float
    tokens: int
    finish: FinishReason | None

    @classmethod
    def of(cls, number: int, chunk: AudioChunk) -> Chunk:
        data = chunk.samples.astype(np.float32, copy=False).tobytes()
        return cls(number, data, chunk.index, chunk.start, chunk.tokens, chunk.finish)

    def chunk(self) -> AudioChunk:
        samples = np.frombuffer(self.samples, np.float32)
        return AudioChunk(samples, self.index, self.start, self.tokens, self.finish)


class Failed(msgspec.Struct, tag=True):
    id: int
    kind: str
    message: str
    retry_after: float = 0.0

    @classmethod
    def of(cls, number: int, error: CosyError) -> Failed:
        wait = error.retry_after if isinstance(error, OverloadError) else 0.0
        return cls(number, type(error).__name__, str(error), wait)

    def error(self) -> CosyError:
        if self.kind == OverloadError.__name__:
            return OverloadError(self.message, self.retry_after)
        return KINDS.get(self.kind, CosyError)(self.message)


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


ToWorker = Open | Cancel | Embed
FromWorker = Ready | Chunk | Failed | Embedded | Stats

to_worker = msgspec.msgpack.Decoder(ToWorker)
from_worker = msgspec.msgpack.Decoder(FromWorker)


def frame(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
