"""Text that arrives piece by piece: handed on while its speech is listened to, or, for models that
want a text at once, asked for sentence by sentence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import numpy as np

from cosyserve.contracts import SAMPLE_RATE, AudioChunk, FinishReason, SpeechRequest, Text
from cosyserve.errors import InputError, OverloadError
from cosyserve.text.sentences import sentences, sentences_async

Speak = Callable[[SpeechRequest], AsyncGenerator[AudioChunk, None]]
NOTHING = np.zeros(0, np.float32)
PATIENCE = 10.0  # seconds that a later sentence waits for a place


class ConcatenatedChunks:
    """Several requests' chunks as those of one."""

    def __init__(self, request: SpeechRequest) -> None:
        self._request, self._sentences = request, 0
        self._index = self._samples = self._text_tokens = 0
        self._finish: FinishReason = "stop"

    @property
    def begun(self) -> bool:
        return self._index > 0

    def ask(self, sentence: str) -> SpeechRequest:
        """The next request."""
        seed = self._request.seed + self._sentences
        self._sentences += 1
        return replace(self._request, text=sentence, seed=seed)

    def hear(self, chunk: AudioChunk) -> AudioChunk:
        """A chunk of the request asked last."""
        self._finish = chunk.finish or self._finish
        self._text_tokens += chunk.text_tokens
        index, start = self._index, self._samples / SAMPLE_RATE
        self._index += 1
        self._samples += len(chunk.samples)
        return replace(chunk, index=index, start=start, finish=None, text_tokens=0)

    def last(self) -> AudioChunk:
        """Ends the speech; the sentences' own last chunks don't."""
        if not self._sentences:
            raise InputError("there is nothing to say in the text")
        start = self._samples / SAMPLE_RATE
        return AudioChunk(NOTHING, self._index, start, 0, self._finish, self._text_tokens)


def one_by_one(
    request: SpeechRequest, speak: Callable[[SpeechRequest], Iterator[AudioChunk]]
) -> Iterator[AudioChunk]:
    assert isinstance(request.text, Iterator)
    joined = ConcatenatedChunks(request)
    for sentence in sentences(request.text):
        for chunk in speak(joined.ask(sentence)):
            yield joined.hear(chunk)
    yield joined.last()


def opened(
    request: SpeechRequest, speak: Speak, *, takes_pieces: bool
) -> AsyncGenerator[AudioChunk, None]:
    """One request, or several where the text arrives and the model does not take that."""
    if isinstance(request.text, str) or takes_pieces:
        return speak(request)
    return one_by_one_later(request, speak)


async def one_by_one_later(
    request: SpeechRequest, speak: Speak
) -> AsyncGenerator[AudioChunk, None]:
    if not isinstance(request.text, AsyncIterator):
        raise InputError("text in pieces must be an asynchronous iterator")
    joined = ConcatenatedChunks(request)
    async with aclosing(sentences_async(request.text)) as texts:
        async for sentence in texts:
            patience = PATIENCE if joined.begun else 0.0
            async with aclosing(_patiently(speak, joined.ask(sentence), patience)) as chunks:
                async for chunk in chunks:
                    yield joined.hear(chunk)
    yield joined.last()


async def _patiently(
    speak: Speak, request: SpeechRequest, patience: float
) -> AsyncGenerator[AudioChunk, None]:
    """Whoever has heard a sentence is not sent away before the next because the queue is full."""
    deadline, begun = time.monotonic() + patience, False
    while True:
        try:
            async with aclosing(speak(request)) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
            return
        except OverloadError as error:
            if begun or time.monotonic() + error.retry_after > deadline:
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
            async for piece in text:
                push(piece)
            end()
        except Exception as error:  # whoever listens must hear of it, not wait for ever
            fail(error)

    feeder = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeder.cancel()
        await asyncio.wait([feeder])
        if isinstance(text, AsyncGenerator):
            await text.aclose()
