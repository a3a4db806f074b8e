"""Text that arrives piece by piece: handed on while its speech is listened to, or, for models that
want a text at once, asked for sentence by sentence. SSML is asked for part by part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from cosyserve.contracts import (
    SAMPLE_RATE,
    AudioChunk,
    FinishReason,
    Floats,
    SpeechRequest,
    Text,
    Timeline,
)
from cosyserve.engine.compute.playback import Playback
from cosyserve.errors import InputError, OverloadError
from cosyserve.text.pronunciation.ssml import is_ssml, read_ssml
from cosyserve.text.sentences import Split, ends_sentence, sentences, sentences_async

Speak = Callable[[SpeechRequest], AsyncGenerator[AudioChunk, None]]
NOTHING = np.zeros(0, np.float32)
HALT_SECONDS = 1.0  # without a piece, after which nothing of the text is held back
QUEUE_SECONDS = 10.0  # that a later sentence waits for a place in a full queue


class ConcatenatedChunks:
    """The chunks of several requests, one a sentence or a part, as those of one."""

    def __init__(self, request: SpeechRequest) -> None:
        self._request = request
        self._sentences = 0
        self._playback = Playback()
        self._text_tokens = self._retries = 0
        self._finish: FinishReason = "stop"

    @property
    def started(self) -> bool:
        return self._playback.chunks > 0

    def next_request(
        self, text: str, rate: float = 1.0, *, final_pause: bool = True
    ) -> SpeechRequest:
        seed = self._request.seed + self._sentences
        self._sentences += 1
        speed = self._request.speed * rate
        return replace(self._request, text=text, seed=seed, speed=speed, final_pause=final_pause)

    def silence(self, seconds: float) -> AudioChunk:
        return self._send(np.zeros(round(seconds * SAMPLE_RATE), np.float32))

    def add(self, chunk: AudioChunk) -> AudioChunk:
        """A chunk of the newest request."""
        if self._finish == "stop":
            self._finish = chunk.finish or "stop"
        self._text_tokens += chunk.text_tokens
        self._retries += chunk.retries
        # The LM goes on with the next sentence. When it entered the queue is told of the first.
        first = chunk.timeline and replace(chunk.timeline, drawn=None)
        return self._send(chunk.samples, chunk.tokens, None if self.started else first)

    def last(self) -> AudioChunk:
        """The end of the speech; the sentences' own last chunks are not."""
        if not self._sentences:
            raise InputError("there is nothing to say in the text")
        return self._send(NOTHING, finish=self._finish)

    def _send(
        self,
        samples: Floats,
        tokens: int = 0,
        timeline: Timeline | None = None,
        finish: FinishReason | None = None,
    ) -> AudioChunk:
        return self._playback.send(
            *(samples, tokens, time.monotonic(), finish),
            text_tokens=self._text_tokens,
            timeline=timeline,
            retries=self._retries,
        )


def by_sentence(
    request: SpeechRequest, speak: Callable[[SpeechRequest], Iterator[AudioChunk]]
) -> Iterator[AudioChunk]:
    """The speech of a text in pieces, one request a sentence."""
    assert isinstance(request.text, Iterator)
    speech = ConcatenatedChunks(request)
    for sentence in sentences(request.text):
        for chunk in speak(speech.next_request(sentence)):
            yield speech.add(chunk)
    yield speech.last()


def by_part(
    request: SpeechRequest, speak: Callable[[SpeechRequest], Iterator[AudioChunk]]
) -> Iterator[AudioChunk]:
    """The speech of SSML, one request a part."""
    speech, parts = _in_parts(request)
    for part, pause in parts:
        if part:
            for chunk in speak(part):
                yield speech.add(chunk)
        if pause:
            yield speech.silence(pause)
    yield speech.last()


def _in_parts(
    request: SpeechRequest,
) -> tuple[ConcatenatedChunks, list[tuple[SpeechRequest | None, float]]]:
    """The requests of SSML (None: there is no text), each with the seconds of silence behind it."""
    assert isinstance(request.text, str)
    ssml = read_ssml(request.text)
    if not any(part.text for part in ssml.parts):
        raise InputError("there is nothing to say in the text")
    speech = ConcatenatedChunks(replace(request, lexicon=request.lexicon | ssml.lexicon))
    parts: list[tuple[SpeechRequest | None, float]] = []
    for part, following in zip_longest(ssml.parts, ssml.parts[1:]):
        said = None
        if part.text:
            # A break takes the place of the model's own pause; inside a sentence there is none.
            final_pause = part.pause is None and (
                ends_sentence(part.text, following.text) if following else request.final_pause
            )
            said = speech.next_request(part.text, part.rate, final_pause=final_pause)
        parts.append((said, part.pause or 0.0))
    return speech, parts


def opened(
    request: SpeechRequest, speak: Speak, *, takes_pieces: bool
) -> AsyncGenerator[AudioChunk, None]:
    """One request; or one a part of SSML; or one a sentence, where the text arrives and the model
    does not take that."""
    if isinstance(request.text, str):
        return _by_part_async(request, speak) if is_ssml(request.text) else speak(request)
    return speak(request) if takes_pieces else by_sentence_async(request, speak)


async def _by_part_async(request: SpeechRequest, speak: Speak) -> AsyncGenerator[AudioChunk, None]:
    speech, parts = _in_parts(request)
    for part, pause in parts:
        if part:
            seconds = QUEUE_SECONDS if speech.started else 0.0
            async with aclosing(_with_retries(speak, part, seconds)) as chunks:
                async for chunk in chunks:
                    yield speech.add(chunk)
        if pause:
            yield speech.silence(pause)
    yield speech.last()


async def by_sentence_async(
    request: SpeechRequest, speak: Speak, split: Split = "sentence"
) -> AsyncGenerator[AudioChunk, None]:
    """The speech of a text in pieces, one request a sentence or a clause."""
    if not isinstance(request.text, AsyncIterator):
        raise InputError("text in pieces must be an asynchronous iterator")
    speech = ConcatenatedChunks(request)
    async with aclosing(sentences_async(request.text, split)) as texts:
        async for sentence in texts:
            seconds = QUEUE_SECONDS if speech.started else 0.0
            following = _with_retries(speak, speech.next_request(sentence), seconds)
            async with aclosing(following) as chunks:
                async for chunk in chunks:
                    yield speech.add(chunk)
    yield speech.last()


async def _with_retries(
    speak: Speak, request: SpeechRequest, seconds: float
) -> AsyncGenerator[AudioChunk, None]:
    """A listener who has heard a sentence is not sent away before the next because the queue is
    full: for so many seconds it is asked again."""
    deadline, started = time.monotonic() + seconds, False
    while True:
        try:
            async with aclosing(speak(request)) as chunks:
                async for chunk in chunks:
                    started = True
                    yield chunk
            return
        except OverloadError as error:
            if started or time.monotonic() + error.retry_after > deadline:
                raise
            await asyncio.sleep(error.retry_after)


@asynccontextmanager
async def feeding(
    text: Text,
    push: Callable[[str], None],
    end: Callable[[], None],
    fail: Callable[[Exception], None],
) -> AsyncGenerator[None, None]:
    """Pieces go to `push` until the block is left; a text that is whole needs nothing."""
    if isinstance(text, str):
        yield
        return
    if not isinstance(text, AsyncIterator):
        raise InputError("text in pieces must be an asynchronous iterator, or it stops everything")

    async def feed() -> None:
        try:
            async with aclosing(_with_halts(text)) as pieces:
                async for piece in pieces:
                    push(piece)
            end()
        except Exception as error:  # the listener must not wait for ever
            fail(error)

    feeder = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeder.cancel()
        await asyncio.wait([feeder])
        if isinstance(text, AsyncGenerator):
            await text.aclose()


async def _with_halts(pieces: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """The pieces, and an empty one where the next lets itself be waited for."""
    coming = asyncio.ensure_future(anext(pieces))
    try:
        while True:
            arrived, _ = await asyncio.wait([coming], timeout=HALT_SECONDS)
            if not arrived:
                yield ""
            try:
                piece = await coming
            except StopAsyncIteration:
                return
            if piece:
                yield piece
            coming = asyncio.ensure_future(anext(pieces))
    finally:
        coming.cancel()
        await asyncio.wait([coming])
