"""The role `token2wav` of a worker process: flow and vocoder behind a socket.

Knows no text, no LM and no client. When the other end of the socket closes, the worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from cosyserve.checkpoints.model import Model
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.split.token2wav_service import Stream, Token2WavService
from cosyserve.engine.workers.messages import Failed, frame, next_body
from cosyserve.engine.workers.token2wav_link import (
    Advance,
    Begin,
    Close,
    FromToken2Wav,
    Here,
    Spoken,
    ToToken2Wav,
    to_token2wav,
)
from cosyserve.errors import CosyError, VoiceError
from cosyserve.voices.mirror import ReceivedVoices


class Token2WavWorker:
    def __init__(self, model: Model, cache_bytes: int) -> None:
        self._fingerprint = model.config.fingerprint
        self._backend = Token2WavService(*model.need_token2wav())
        self._voices = ReceivedVoices(cache_bytes)
        self._streams: dict[int, Stream | CosyError] = {}
        self._speaking: set[asyncio.Task[None]] = set()

    async def run(self, link: socket.socket) -> None:
        """Until the other end closes."""
        reader, self._writer = await asyncio.open_connection(sock=link)
        self._send(Here(self._fingerprint))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._take(to_token2wav.decode(await next_body(reader)))

    async def _take(self, message: ToToken2Wav) -> None:
        if isinstance(message, Begin):
            self._streams[message.id] = self._begin(message)
        elif isinstance(message, Close):
            stream = self._streams.pop(message.id, None)
            if isinstance(stream, Stream):
                await stream.close()
        else:
            task = asyncio.create_task(self._advance(message))
            self._speaking.add(task)
            task.add_done_callback(self._speaking.discard)

    def _begin(self, message: Begin) -> Stream | CosyError:
        """What can't begin is told when it is asked to go on."""
        try:
            voice = self._voices.take(message.voice_key, message.voice)
            return self._backend.begin(
                voice,
                with_prompt=message.with_prompt,
                seed=message.seed,
                speed=message.speed,
                stream=message.stream,
            )
        except Exception as error:
            return client_error(error)

    async def _advance(self, message: Advance) -> None:
        stream = self._streams.get(message.id, VoiceError("the stream is closed"))
        try:
            if isinstance(stream, CosyError):
                raise stream
            samples = await stream.advance(message.tokens, final=message.final)
        except Exception as error:
            self._send(Failed.of(message.id, client_error(error)))
        else:
            self._send(Spoken(message.id, samples.tobytes()))

    def _send(self, message: FromToken2Wav) -> None:
        self._writer.write(frame(message))
