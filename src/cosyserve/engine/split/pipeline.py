"""Speaks with any speech LM and any token2wav, each of which may run anywhere.

It holds the same `Take` as the scheduler, so that the speech is that of the engine in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cosyserve.backends.protocols import LMBackend, LMRequest, Token2WavBackend
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, FinishReason, Floats, Mode, SpeechRequest
from cosyserve.engine.compute.hops import HOP_TOKENS, NEVER
from cosyserve.engine.compute.playback import Playback
from cosyserve.engine.scheduling.lm_requests import LMTask, lm_tasks, segment_seed
from cosyserve.engine.scheduling.take import Take, TokenSource, UnusableTakeError
from cosyserve.errors import InputError, WorkerError
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.voices.fits import check_fits

BACKEND_TIMEOUT = 60.0  # seconds without a token or a chunk, after which a backend counts as stuck


class TokenStream:
    """Tokens that the LM has drawn so far for an utterance, by its newest attempt."""

    def __init__(self, task: LMTask, take: Callable[[TokenSource], Take], attempt: int = 0) -> None:
        self.attempt = attempt
        self.tokens: list[int] = []
        self.finish: FinishReason | None = None
        self.error: Exception | None = None
        self.take = take(self)
        self.task = task
        self._early: list[int] = []  # of an attempt that ended too soon
        self._updated = asyncio.Event()

    async def receive(self, lm: LMBackend, first_audio: asyncio.Event) -> None:
        """Until the LM is done; once more, where it ended too soon."""
        try:
            await self._draw(lm, first_audio)
            if self.finish is None:
                raise WorkerError("the speech LM left in the middle of the speech")
        except Exception as error:
            self.error = error
        self._updated.set()

    async def wait_for(self, count: int) -> None:
        """Until there are so many tokens, or all."""
        while self.finish is None and len(self.tokens) < count:
            if self.error:
                raise self.error
            self._updated.clear()
            async with _timeout("speech LM"):
                await self._updated.wait()

    async def _draw(self, lm: LMBackend, first_audio: asyncio.Event) -> None:
        """Before the first audio was made, no more tokens are asked for than it needs, so that the
        LM may leave the processor to it."""
        request = self._request()
        async with aclosing(lm.generate(request)) as pieces:
            async for piece in pieces:
                self.tokens += piece.ids
                self.finish = piece.finish
                if self.finish and len(self.tokens) < len(self._early):
                    self.tokens[:] = self._early  # it ended even sooner
                if self.take.redraws and not self.attempt:
                    break
                self._updated.set()
                if self.finish is None and len(self.tokens) >= request.first_chunk:
                    await first_audio.wait()
            else:
                return
            # Nobody has seen an end that comes too soon: there was no pause since.
            self._early = self.tokens[:]
            self.tokens.clear()
            self.finish, self.attempt = None, self.attempt + 1
        await self._draw(lm, first_audio)

    def _request(self) -> LMRequest:
        """Tokens are wanted when a chunk can be made of them."""
        first_chunk = self.take.needed
        chunk = HOP_TOKENS if first_chunk < NEVER else 1
        return replace(self.task.for_attempt(self.attempt), first_chunk=first_chunk, chunk=chunk)


@dataclass(eq=False)
class SplitSession:
    """One request, its utterances' tokens as far as they are planned, and what was sent of it."""

    request: SpeechRequest
    streams: list[TokenStream]
    text_tokens: int
    whole: bool = False  # all utterances are planned
    error: Exception | None = None  # why no more could be
    finish: FinishReason = "stop"  # of its utterances, the first that did not end well
    playback: Playback = field(default_factory=Playback)
    first_audio: asyncio.Event = field(default_factory=asyncio.Event)
    _planned: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, stream: TokenStream | None) -> None:
        """Another utterance is planned; None: there are no more."""
        if stream is None:
            self.whole = True
        else:
            self.streams.append(stream)
            self.text_tokens += stream.task.text_tokens
        self._planned.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._planned.set()

    async def is_last(self, number: int) -> bool:
        """Whether no utterance follows, as soon as that is known."""
        while number == len(self.streams) - 1 and not self.whole:
            if self.error:
                raise self.error
            self._planned.clear()
            await self._planned.wait()
        return number == len(self.streams) - 1

    def send(self, samples: Floats, tokens: int, finish: FinishReason | None) -> AudioChunk:
        """The next chunk; `finish` says how the speech ended."""
        return self.playback.send(
            *(samples, tokens, time.monotonic(), finish),
            text_tokens=self.text_tokens,
            retries=sum(stream.attempt for stream in self.streams),
        )


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
        tasks = self._plan(request)
        first = await asyncio.to_thread(next, tasks)
        session = SplitSession(request, [self._token_stream(request, first, 0)], first.text_tokens)
        receivers = [asyncio.create_task(self._draw_all(session, tasks))]
        number = 0
        try:
            while number < len(session.streams):
                try:
                    async with aclosing(self._speak(session, number)) as out:
                        async for chunk in out:
                            yield chunk
                except UnusableTakeError:
                    failed = session.streams[number]
                    if failed.attempt or failed.take.heard:
                        raise
                    again = self._token_stream(request, failed.task, number, attempt=1)
                    session.streams[number] = again
                    receiver = again.receive(self.lm, session.first_audio)
                    receivers.append(asyncio.create_task(receiver))
                    async with aclosing(self._speak(session, number)) as out:
                        async for chunk in out:
                            yield chunk
                number += 1
        finally:
            for receiving in receivers:
                receiving.cancel()
            await asyncio.gather(*receivers, return_exceptions=True)

    async def close(self) -> None:
        await self.lm.close()
        await self.token2wav.close()

    async def _draw_all(self, session: SplitSession, tasks: Iterator[LMTask]) -> None:
        """The LM may run ahead of the audio: one utterance of a session at a time. The next one is
        planned meanwhile, but before the first audio only when there is nothing else to draw."""
        heard = asyncio.create_task(session.first_audio.wait())
        works: list[asyncio.Task[Any]] = [heard]
        stream: TokenStream | None = session.streams[0]
        try:
            while stream:
                receiving = asyncio.create_task(stream.receive(self.lm, session.first_audio))
                works = [heard, receiving]
                if session.request.stream:
                    await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
                stream = await self._plan_next(session, tasks)
                await receiving
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _plan_next(
        self, session: SplitSession, tasks: Iterator[LMTask]
    ) -> TokenStream | None:
        try:
            task = await asyncio.to_thread(next, tasks, None)
        except Exception as error:
            session.fail(error)
            return None
        number = len(session.streams)
        stream = self._token_stream(session.request, task, number) if task else None
        session.follow(stream)
        return stream

    def _plan(self, request: SpeechRequest) -> Iterator[LMTask]:
        if request.mode is Mode.CONVERT or not isinstance(request.text, str):
            raise InputError("neither 'convert' nor text in pieces is possible with this engine")
        check_fits(request.voice, self.model.config.voice_format)
        config = self.model.config
        task = None
        for task in lm_tasks(config, self._tokenizer, request, request.text, self._read):
            yield task
        if task is None:
            raise InputError("there is nothing to say in the text")

    def _token_stream(
        self, request: SpeechRequest, task: LMTask, number: int, attempt: int = 0
    ) -> TokenStream:
        prompt_tokens = len(request.voice.speech_tokens) - request.voice.flow_start

        def take(source: TokenSource) -> Take:
            return Take(
                source,
                stream=request.stream,
                prompt_tokens=0 if request.mode is Mode.PRESET else prompt_tokens,
                grid=self._flow.grid,
                lookahead=self._flow.encoder.lookahead,
                hop=HOP_TOKENS,
                fixed=self._flow.remembers,
                least=task.least_tokens,
                pause=task.pause,
                follows=number > 0,
            )

        return TokenStream(task, take, attempt)

    async def _speak(self, session: SplitSession, number: int) -> AsyncGenerator[AudioChunk, None]:
        request, tokens = session.request, session.streams[number]
        take = tokens.take
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
                take.check(first=not tokens.attempt)
                final = take.final
                async with _timeout("token2wav"):
                    samples = await stream.advance(take.due(), final=final)
                samples, count = take.advance(samples)
                if final and session.finish == "stop":
                    session.finish = take.finish or "stop"
                session.first_audio.set()
                last = final and await session.is_last(number)
                yield session.send(samples, count, session.finish if last else None)
        finally:
            await asyncio.shield(stream.close())


@asynccontextmanager
async def _timeout(backend: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(BACKEND_TIMEOUT):
            yield
    except TimeoutError:
        raise WorkerError(f"the {backend} was silent for {BACKEND_TIMEOUT:g} s") from None
