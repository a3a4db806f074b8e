"""Speaks with any speech LM and any token2wav, each of which may run anywhere.

It holds the same `Take` as the scheduler, so that the speech is that of the engine in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

from cosyserve.backends.protocols import LMBackend, LMRequest, Token2WavBackend
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, FinishReason, Mode, SpeechRequest
from cosyserve.engine.compute.hops import HOP_TOKENS, NEVER
from cosyserve.engine.compute.playback import Playback
from cosyserve.engine.scheduling.lm_requests import LMTask, lm_tasks, segment_seed
from cosyserve.engine.scheduling.take import Take, UnusableTakeError
from cosyserve.errors import InputError, WorkerError
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.voices.fits import check_fits

BACKEND_TIMEOUT = 60.0  # seconds without a token or a chunk, after which a backend counts as stuck


@dataclass(eq=False)
class TokenStream:
    """Tokens that the LM has drawn so far for an utterance."""

    request: LMRequest
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    error: Exception | None = None
    updated: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, lm: LMBackend, first_audio: asyncio.Event) -> None:
        """Until the LM is done. Before the first audio was made, no more tokens are asked for than
        it needs, so that the LM may leave the processor to it."""
        try:
            async with aclosing(lm.generate(self.request)) as pieces:
                async for piece in pieces:
                    self.tokens += piece.ids
                    self.finish = piece.finish
                    self.updated.set()
                    if self.finish is None and len(self.tokens) >= self.request.first_chunk:
                        await first_audio.wait()
        except Exception as error:
            self.error = error
        else:
            if self.finish is None:
                self.error = WorkerError("the speech LM left in the middle of the speech")
        self.updated.set()

    async def wait_for(self, count: int) -> None:
        """Until there are so many tokens, or all."""
        while self.finish is None and len(self.tokens) < count:
            if self.error:
                raise self.error
            self.updated.clear()
            async with _timeout("speech LM"):
                await self.updated.wait()


@dataclass(eq=False)
class SplitSession:
    """One request, and what was sent of it."""

    request: SpeechRequest
    text_tokens: int
    playback: Playback = field(default_factory=Playback)
    attempts: int = 0
    first_audio: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def first_attempt(self) -> bool:
        return not (self.playback.chunks or self.attempts)


class SplitEngine:
    """Its `open` is that of `contracts.Engine`."""

    def __init__(
        self,
        model: Model,
        lm: LMBackend,
        token2wav: Token2WavBackend,
        read: Reader = read_numbers,
    ) -> None:
        """`model` needs no weights: sizes and a text tokenizer are enough."""
        assert model.text_tokenizer
        assert model.config.flow
        self.model = model
        self.lm = lm
        self.token2wav = token2wav
        self._tokenizer = model.text_tokenizer
        self._flow = model.config.flow
        self._read = read

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order. Closing the iterator cancels the session, here and in both backends."""
        tasks = await asyncio.to_thread(self._plan, request)
        session = SplitSession(request, sum(task.text_tokens for task in tasks))
        streams = [self._token_stream(request, task, 0) for task in tasks]
        receivers = [asyncio.create_task(_receive_all(self.lm, streams, session.first_audio))]
        try:
            for number, task in enumerate(tasks):
                last = number == len(tasks) - 1
                try:
                    async with aclosing(self._speak(session, streams[number], number, last)) as out:
                        async for chunk in out:
                            yield chunk
                except UnusableTakeError:
                    if not session.first_attempt:
                        raise
                    session.attempts += 1
                    again = self._token_stream(request, task, session.attempts)
                    receiver = again.receive(self.lm, session.first_audio)
                    receivers.append(asyncio.create_task(receiver))
                    async with aclosing(self._speak(session, again, number, last)) as out:
                        async for chunk in out:
                            yield chunk
        finally:
            for receiving in receivers:
                receiving.cancel()
            await asyncio.gather(*receivers, return_exceptions=True)

    async def close(self) -> None:
        await self.lm.close()
        await self.token2wav.close()

    def _plan(self, request: SpeechRequest) -> list[LMTask]:
        if request.mode is Mode.CONVERT or not isinstance(request.text, str):
            raise InputError("neither 'convert' nor text in pieces is possible with this engine")
        check_fits(request.voice, self.model.config.voice_format)
        config = self.model.config
        tasks = lm_tasks(config, self._tokenizer, request, request.text, self._read)
        if not tasks:
            raise InputError("there is nothing to say in the text")
        return tasks

    def _take(self, stream: TokenStream, request: SpeechRequest) -> Take:
        prompt_tokens = len(request.voice.speech_tokens) - request.voice.flow_start
        return Take(
            stream,
            stream=request.stream,
            prompt_tokens=0 if request.mode is Mode.PRESET else prompt_tokens,
            grid=self._flow.grid,
            lookahead=self._flow.encoder.lookahead,
            hop=HOP_TOKENS,
        )

    def _token_stream(self, request: SpeechRequest, task: LMTask, attempt: int) -> TokenStream:
        """Tokens are wanted when a chunk can be made of them."""
        stream = TokenStream(task.for_attempt(attempt))
        first_chunk = self._take(stream, request).needed
        chunk = HOP_TOKENS if first_chunk < NEVER else 1
        stream.request = replace(stream.request, first_chunk=first_chunk, chunk=chunk)
        return stream

    async def _speak(
        self, session: SplitSession, tokens: TokenStream, number: int, last: bool
    ) -> AsyncGenerator[AudioChunk, None]:
        request = session.request
        take = self._take(tokens, request)
        stream = self.token2wav.begin(
            request.voice,
            with_prompt=request.mode is not Mode.PRESET,
            seed=segment_seed(request.seed, number),
            speed=request.speed,
            stream=request.stream,
        )
        final = False
        try:
            while not final:
                await tokens.wait_for(take.needed)
                take.extend()
                take.check(first=session.first_attempt)
                final = take.final
                async with _timeout("token2wav"):
                    samples = await stream.advance(take.due(), final=final)
                count = take.advance(samples)
                finish = tokens.finish if final and last else None
                session.first_audio.set()
                now = time.monotonic()
                yield session.playback.send(samples, count, now, finish, session.text_tokens)
        finally:
            await asyncio.shield(stream.close())


async def _receive_all(
    lm: LMBackend, streams: list[TokenStream], first_audio: asyncio.Event
) -> None:
    """The LM may run ahead of the audio: one utterance of a session at a time."""
    for stream in streams:
        await stream.receive(lm, first_audio)


@asynccontextmanager
async def _timeout(backend: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(BACKEND_TIMEOUT):
            yield
    except TimeoutError:
        raise WorkerError(f"the {backend} was silent for {BACKEND_TIMEOUT:g} s") from None
