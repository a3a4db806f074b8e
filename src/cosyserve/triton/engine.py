"""Triton servers as one engine: each request goes to the one with the least to do.

A server that dies ends its streams with a `WorkerError` at once and is left out until it is ready
again; a request without any audio yet goes to another server instead. It imports no torch, so that
the gateway starts in a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from cosyserve.audio import resample
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.contracts import (
    SAMPLE_RATE,
    AudioChunk,
    EngineStats,
    Floats,
    Ints,
    Mode,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.text_stream import opened
from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError
from cosyserve.triton.client import is_address
from cosyserve.triton.speech import audio_chunk, plain_inputs, request_inputs
from cosyserve.triton.tensors import Tensors
from cosyserve.triton.upstream import ServedModel, Upstream
from cosyserve.triton.vocabulary import vocabulary_of
from cosyserve.voices.enroll import check_recording, voice_from_features

SCHEME = "triton://"
MODELS = "cosyvoice2", "cosyvoice3", "cosyvoice2_dit"  # one of which a server has
START_SECONDS = 300.0  # for the first server to be ready
FIRST_SECONDS = 60.0  # until a stream begins
BETWEEN_SECONDS = 30.0  # from one chunk to the next
EMBED_SECONDS = 30.0
NOTHING = np.zeros(0, np.float32)


class TritonEngine:
    """Implements `contracts.Engine`."""

    def __init__(self, addresses: Sequence[str], models: Sequence[str] = MODELS) -> None:
        """The servers have one of the models."""
        self.addresses = addresses
        self._models = models
        self._servers: list[Upstream] = []
        self._served: ServedModel | None = None
        self._info: ModelInfo | None = None
        self._sessions = self._tokens = 0

    @classmethod
    def of(cls, url: str) -> TritonEngine:
        """triton://host:port,host:port,… and, after a slash, the model, if its name is another."""
        places, _, model = url.removeprefix(SCHEME).partition("/")
        addresses = places.split(",")
        if not url.startswith(SCHEME) or not all(is_address(place) for place in addresses):
            raise InputError(f"{url!r:.200}: write triton://HOST:8001 or triton://A:8001,B:8001")
        return cls(addresses, (model,) if model else MODELS)

    async def start(self) -> None:
        """Returns when one of the servers is ready."""
        self._servers = [Upstream(address, self._models) for address in self.addresses]
        until = asyncio.get_running_loop().time() + START_SECONDS
        while not (ready := [server for server in self._servers if server.ready]):
            troubles = [server.trouble for server in self._servers if server.trouble]
            for trouble in troubles:
                if isinstance(trouble, InputError):
                    raise trouble
            if asyncio.get_running_loop().time() > until:
                raise WorkerError(f"no server is ready: {'; '.join(map(str, troubles))}")
            await asyncio.sleep(0.05)
        served = self._served = ready[0].served
        assert served
        self._info = served.info
        for server in self._servers:
            server.expect(served)

    @property
    def model(self) -> ModelInfo:
        if self._info is None:
            raise WorkerError("no Triton server has been ready yet")
        return self._info

    def stats(self) -> EngineStats:
        return EngineStats(
            ready=any(server.ready for server in self._servers),
            waiting=0,
            running=sum(server.load for server in self._servers),
            sessions=self._sessions,
            tokens=self._tokens,
        )

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        if request.mode is Mode.CONVERT:
            raise InputError("mode 'convert' is not possible with Triton servers")
        self._sessions += 1
        async with aclosing(opened(request, self._utter, takes_pieces=False)) as chunks:
            async for chunk in chunks:
                self._tokens += chunk.tokens
                yield chunk

    async def embed(self, recording: Recording) -> Voice:
        check_recording(recording)
        narrow = await asyncio.to_thread(resample, recording.samples, recording.rate, SPEECH_RATE)
        server = self._least_loaded()
        tokens, embedding = await asyncio.gather(
            self._tokens_of(server, narrow), self._embedding_of(server, narrow)
        )
        voice = await asyncio.to_thread(
            voice_from_features, self.model, recording, tokens, embedding
        )
        if self._served and self._served.takes_voices:
            return voice
        return replace(voice, source=recording.samples)

    async def _tokens_of(self, server: Upstream, recording: Floats) -> Ints:
        inputs = {
            "reference_wav": recording[None],
            "reference_wav_len": np.array([[len(recording)]], np.int32),
        }
        answer = await server.client.infer("audio_tokenizer", inputs, seconds=EMBED_SECONDS)
        ids = answer["prompt_speech_tokens"].reshape(-1).tolist()
        return np.array(vocabulary_of(self.model.family).tokens(ids), np.int32)

    async def _embedding_of(self, server: Upstream, recording: Floats) -> Floats:
        inputs = {"reference_wav": recording[None]}
        answer = await server.client.infer("speaker_embedding", inputs, seconds=EMBED_SECONDS)
        exact = answer.get("embedding", answer.get("prompt_spk_embedding"))
        if exact is None:
            raise CosyError("the model speaker_embedding gives no embedding")
        return exact.reshape(-1).astype(np.float32)

    async def _utter(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speaks a whole text. What fails before the first chunk goes to another server."""
        assert self._served
        assert isinstance(request.text, str)
        make = request_inputs if self._served.takes_voices else plain_inputs
        own = (name for name, voice in self.model.voices.items() if voice is request.voice)
        inputs = await asyncio.to_thread(make, request, request.text, own_voice=next(own, ""))
        tried: list[Upstream] = []
        has_audio = False
        while True:
            server = self._least_loaded(tried)
            try:
                async with aclosing(self._speak(server, inputs)) as chunks:
                    async for chunk in chunks:
                        has_audio = True
                        yield chunk
                return
            except (WorkerError, OverloadError) as error:
                if isinstance(error, WorkerError):
                    server.leave_out(error)
                tried.append(server)
                if has_audio or not any(s.ready for s in self._servers if s not in tried):
                    raise

    async def _speak(self, server: Upstream, inputs: Tensors) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order. The last one is yielded when its stream is over: closing earlier would
        cancel what has ended."""
        samples = index = 0
        last: AudioChunk | None = None
        server.load += 1
        try:
            async with aclosing(
                server.client.stream(
                    server.model,
                    inputs,
                    first_seconds=FIRST_SECONDS,
                    between_seconds=BETWEEN_SECONDS,
                )
            ) as answers:
                while (answer := await server.while_alive(_next(answers))) is not None:
                    chunk = audio_chunk(answer, index, samples / SAMPLE_RATE)
                    index, samples = index + 1, samples + len(chunk.samples)
                    if chunk.final:
                        last = chunk
                    else:
                        yield chunk
        finally:
            server.load -= 1
        yield last or AudioChunk(NOTHING, index, samples / SAMPLE_RATE, 0, "stop")

    def _least_loaded(self, tried: Sequence[Upstream] = ()) -> Upstream:
        ready = [server for server in self._servers if server.ready and server not in tried]
        if not ready:
            raise WorkerError("no Triton server is ready: try again in a moment")
        return min(ready, key=lambda server: server.load)


async def _next(answers: AsyncGenerator[Tensors, None]) -> Tensors | None:
    return await anext(answers, None)
