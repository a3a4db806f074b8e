"""What gateway and worker say to each other, and how it travels: length, then msgpack.

The dataclasses of `contracts` travel as they are, arrays with their type and shape; the voice of a
request as a file, once. Nothing here imports torch.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import IO, Any, Generic, TypeVar

import msgspec
import numpy as np

from cosyserve.contracts import (
    AudioChunk,
    EngineStats,
    ModelInfo,
    Pushed,
    Recording,
    SpeechOptions,
    SpeechRequest,
    Voice,
)
from cosyserve.errors import CosyError, OverloadError, WorkerError
from cosyserve.voices.memory.mirror import voice_key

LENGTH = struct.Struct("<I")


class Open(msgspec.Struct, tag=True):
    """`voice_key` names a voice that came before; `voice` brings one along, as a file."""

    id: int
    text: str | None  # None: it is pushed piece by piece
    voice_key: str
    voice: bytes | None
    options: SpeechOptions

    @classmethod
    def of(cls, id: int, request: SpeechRequest, voice: bytes | None) -> Open:
        text = request.text if isinstance(request.text, str) else None
        return cls(id, text, voice_key(request.voice), voice, request.options)

    def request(self, voice: Voice) -> SpeechRequest:
        text = Pushed() if self.text is None else self.text
        return SpeechRequest(text=text, voice=voice, **self.options)


class Push(msgspec.Struct, tag=True):
    """More text of a request whose text is pushed."""

    id: int
    text: str


class End(msgspec.Struct, tag=True):
    """The end of a text that is pushed."""

    id: int


class Cancel(msgspec.Struct, tag=True):
    """The client has left."""

    id: int


class EmbedRequest(msgspec.Struct, tag=True):
    """A recording to learn a voice from."""

    id: int
    recording: Recording


class Forget(msgspec.Struct, tag=True):
    """A voice that nobody used for a while; it may have been removed."""

    voice_key: str


class Ready(msgspec.Struct, tag=True):
    """The worker can speak."""

    model: ModelInfo
    stats: EngineStats


class NotStarted(msgspec.Struct, tag=True):
    """The worker can't load its model, and ends."""

    message: str


class Chunk(msgspec.Struct, tag=True):
    """The next audio of a request."""

    id: int
    chunk: AudioChunk


class Failed(msgspec.Struct, tag=True):
    """The end of a request by an error."""

    id: int
    kind: str
    message: str
    retry_after: float = 0.0

    @classmethod
    def of(cls, id: int, error: CosyError) -> Failed:
        wait = error.retry_after if isinstance(error, OverloadError) else 0.0
        return cls(id, error.kind, str(error), wait)

    @property
    def error(self) -> CosyError:
        return CosyError.of_kind(self.kind, self.message, self.retry_after)


class Embedded(msgspec.Struct, tag=True):
    """The voice that was learnt."""

    id: int
    voice: Voice


class Stats(msgspec.Struct, tag=True):
    """Counts of this moment."""

    stats: EngineStats


class Alive(msgspec.Struct, tag=True):
    """The worker has nothing else to say."""


ToWorker = Open | Push | End | Cancel | EmbedRequest | Forget
FromWorker = Ready | NotStarted | Chunk | Failed | Embedded | Stats | Alive
Message = TypeVar("Message")


def _encode_array(array: Any) -> tuple[str, tuple[int, ...], memoryview]:
    if not isinstance(array, np.ndarray):
        raise NotImplementedError(f"{type(array)} is part of no message")
    return array.dtype.str, array.shape, np.ascontiguousarray(array).data


def _decode_array(kind: Any, encoded: tuple[str, list[int], bytes]) -> Any:
    dtype, shape, data = encoded
    return np.frombuffer(bytearray(data), dtype).reshape(shape)  # torch wants it writable


class Reader(Generic[Message]):
    """Reads messages; whatever is none is a WorkerError."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=_decode_array)

    def decode(self, body: bytes | bytearray) -> Message:
        try:
            message: Message = self._decoder.decode(body)
        except Exception as error:  # msgspec, numpy and our own classes have many kinds
            raise WorkerError(f"this is no message: {error}") from error
        return message


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_array)
to_worker: Reader[ToWorker] = Reader(ToWorker)
from_worker: Reader[FromWorker] = Reader(FromWorker)


def frame(message: msgspec.Struct) -> bytearray:
    framed = bytearray(LENGTH.size)
    _encoder.encode_into(message, framed, LENGTH.size)
    LENGTH.pack_into(framed, 0, len(framed) - LENGTH.size)
    return framed


async def next_body(reader: asyncio.StreamReader) -> bytes:
    """The body of the next frame; `asyncio.IncompleteReadError` when the far end has gone."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


def bodies(stream: IO[bytes]) -> Iterator[bytes]:
    """The bodies of all frames, until the far end has gone."""
    while len(head := stream.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        body = stream.read(length)
        if len(body) < length:
            return
        yield body
