"""A token2wav at the far end of a socket: its messages, and how it looks from here.

Knows no torch and no process.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.workers.messages import Failed, frame, next_body
from cosyserve.errors import CosyError, WorkerError
from cosyserve.voices.mirror import SentVoices, voice_key


class Begin(msgspec.Struct, tag=True):
    id: int
    voice_key: str
    voice: bytes | None
    with_prompt: bool
    seed: int
    speed: float
    stream: bool


class Advance(msgspec.Struct, tag=True):
    id: int
    tokens: list[int]
    final: bool


class Close(msgspec.Struct, tag=True):
    id: int


class Here(msgspec.Struct, tag=True):
    """The far end is ready, with this model."""

    fingerprint: str


class Spoken(msgspec.Struct, tag=True):
    id: int
    samples: bytes


ToToken2Wav = Begin | Advance | Close
FromToken2Wav = Here | Spoken | Failed

to_token2wav = msgspec.msgpack.Decoder(ToToken2Wav)
from_token2wav = msgspec.msgpack.Decoder(FromToken2Wav)


class LinkedToken2Wav:
    """Implements `contracts.Token2WavBackend`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cache_bytes: int,
        lost: Callable[[], None],
    ) -> None:
        """`lost` is called when the far end has gone."""
        self._reader, self._writer, self._lost = reader, writer, lost
        self._sent = SentVoices(cache_bytes)
        self._waiting: dict[int, asyncio.Future[Floats]] = {}
        self._numbers = itertools.count()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """The fingerprint of the model at the far end, once that is ready."""
        message = await self._receive()
        if isinstance(message, Failed):
            raise message.error()
        assert isinstance(message, Here)
        self._listening = asyncio.create_task(self._listen())
        return message.fingerprint

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> LinkedStream:
        number = next(self._numbers)
        data = self._sent.bytes_for(voice)
        self._send(Begin(number, voice_key(voice), data, with_prompt, seed, speed, stream))
        return LinkedStream(self, number)

    async def advance(self, number: int, tokens: Sequence[int], final: bool) -> Floats:
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(Advance(number, list(tokens), final))
            found: Floats = await answer
            return found
        finally:
            self._waiting.pop(number, None)

    def end(self, number: int) -> None:
        self._send(Close(number))

    async def close(self) -> None:
        if self._listening:
            self._listening.cancel()
        self._writer.close()

    def _send(self, message: ToToken2Wav) -> None:
        self._writer.write(frame(message))

    async def _receive(self) -> FromToken2Wav:
        message: FromToken2Wav = from_token2wav.decode(await next_body(self._reader))
        return message

    async def _listen(self) -> None:
        try:
            while True:
                message = await self._receive()
                assert not isinstance(message, Here)
                answer = self._waiting.get(message.id)
                if answer and not answer.done():
                    if isinstance(message, Spoken):
                        answer.set_result(np.frombuffer(message.samples, np.float32))
                    else:
                        answer.set_exception(message.error())
        except (asyncio.IncompleteReadError, ConnectionError):
            self._fail(WorkerError("the token2wav worker died while it was speaking"))
            self._lost()

    def _fail(self, error: CosyError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)


class LinkedStream:
    """Implements `contracts.Token2WavStream`."""

    def __init__(self, backend: LinkedToken2Wav, number: int) -> None:
        self._backend, self._number = backend, number

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        return await self._backend.advance(self._number, tokens, final)

    async def close(self) -> None:
        self._backend.end(self._number)
