"""How audio is framed in the body of a response: bare, or in Server-Sent Events.

Framings are called from any thread, one call at a time.
"""

from __future__ import annotations

import base64
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, Protocol

from pydantic import BaseModel

from cosyserve.audio import MEDIA_TYPES, AudioFormat, Encoder
from cosyserve.audio.formats import is_quick, output_rate
from cosyserve.contracts import Floats
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.speech.word_times import WordTimes

# Codecs leave Python's lock to others, so that they keep as many cores busy as there are.
CODECS = ThreadPoolExecutor(min(32, os.cpu_count() or 1), "codec")


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
    quick: bool  # a second of speech is no work for a thread

    def push(self, samples: Floats) -> bytes: ...

    def finish(self, reason: str, usage: Usage) -> bytes:
        """What is left of the audio; `reason` says how it ended."""
        ...

    def words(self, times: WordTimes) -> bytes:
        """The bytes that tell when words are heard; none where this framing has no room."""
        ...

    def failure(self, refusal: Refusal) -> bytes | None:
        """The bytes that report an error after some audio; None: this framing has none."""
        ...


class RawFraming:
    def __init__(self, audio_format: AudioFormat, sample_rate: int | None) -> None:
        self.media_type = MEDIA_TYPES[audio_format]
        self.quick = is_quick(audio_format, sample_rate)
        self._encoder = _opening(audio_format, sample_rate)

    def push(self, samples: Floats) -> bytes:
        return self._encoder.result().push(samples)

    def finish(self, reason: str, usage: Usage) -> bytes:
        return self._encoder.result().finish()

    def words(self, times: WordTimes) -> bytes:
        return b""

    def failure(self, refusal: Refusal) -> bytes | None:
        return None


class SSEFraming:
    media_type = "text/event-stream"

    def __init__(self, audio_format: AudioFormat, sample_rate: int | None) -> None:
        self.quick = is_quick(audio_format, sample_rate)
        self._encoder = _opening(audio_format, sample_rate)

    def push(self, samples: Floats) -> bytes:
        return _delta(self._encoder.result().push(samples))

    def finish(self, reason: str, usage: Usage) -> bytes:
        done = _event(
            {
                "type": "speech.audio.done",
                "finish_reason": reason,
                "usage": usage.model_dump(),
            }
        )
        return _delta(self._encoder.result().finish()) + done

    def words(self, times: WordTimes) -> bytes:
        return _event({"type": "speech.audio.words"} | times.model_dump())

    def failure(self, refusal: Refusal) -> bytes | None:
        return _event({"type": "error"} | refusal.envelope.model_dump())


def open_framing(
    stream_format: Literal["audio", "sse"], audio_format: AudioFormat, sample_rate: int | None
) -> Framing:
    kind = SSEFraming if stream_format == "sse" else RawFraming
    return kind(audio_format, sample_rate)


def _opening(audio_format: AudioFormat, sample_rate: int | None) -> Future[Encoder]:
    """An encoder, whose codec is opened while the first speech is computed."""
    out_rate = output_rate(audio_format, sample_rate)  # which refuses it at once
    if not is_quick(audio_format, sample_rate):
        return CODECS.submit(Encoder, audio_format, out_rate=out_rate)
    opened: Future[Encoder] = Future()
    opened.set_result(Encoder(audio_format, out_rate=out_rate))
    return opened


def _delta(audio: bytes) -> bytes:
    if not audio:  # a codec may still be collecting its first frame
        return b""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def _event(data: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
