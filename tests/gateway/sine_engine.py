"""An engine that hums: everything a gateway needs of one, and every way in which one can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from cosyserve.contracts import (
    FRAMES_PER_TOKEN,
    MEL_BINS,
    SAMPLE_RATE,
    SAMPLES_PER_TOKEN,
    AudioChunk,
    EngineStats,
    FinishReason,
    Floats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Timeline,
    Voice,
    VoiceFormat,
)
from cosyserve.engine.text_stream import feeding
from cosyserve.errors import AudioError


def sine(samples: int) -> Floats:
    return (0.5 * np.sin(2 * np.pi * 220 * np.arange(samples) / SAMPLE_RATE)).astype(np.float32)


def voice_of(tokens: int, text: str = "", **texts: str) -> Voice:
    return Voice(
        prompt_text=text,
        speech_tokens=np.arange(tokens, dtype=np.int32),
        mel=np.zeros((FRAMES_PER_TOKEN * tokens, MEL_BINS), np.float32),
        embedding=np.ones(192, np.float32),
        **{"family": "sine", "fingerprint": "f1", **texts},
    )


FORMAT = VoiceFormat("sine", "f1", embedding=192, mel=MEL_BINS, speech_tokens=6561)
DEFAULT_VOICE = voice_of(0)
FIRST = Timeline(planned=0.01, admitted=0.03, first_tokens=0.04, drawn=None, sent=0.05)
LAST = Timeline(planned=0.01, admitted=0.03, first_tokens=0.04, drawn=0.06, sent=0.08)


class Text:
    """What has come of a text."""

    def __init__(self, known: str = "") -> None:
        self._come = known
        self._news: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self._ended = bool(known)
        self.push = self.fail = self._news.put_nowait

    def end(self) -> None:
        self._news.put_nowait(None)

    async def begin(self) -> None:
        while not (self._come or self._ended):
            await self._listen()

    async def whole(self) -> str:
        while not self._ended:
            await self._listen()
        return self._come

    async def _listen(self) -> None:
        item = await self._news.get()
        if isinstance(item, Exception):
            raise item
        self._come += item or ""
        self._ended = item is None


@asynccontextmanager
async def reading(text: str | Iterator[str] | AsyncIterator[str]) -> AsyncIterator[Text]:
    come = Text(text if isinstance(text, str) else "")
    async with feeding(text, come.push, come.end, come.fail):
        yield come


@dataclass
class SineEngine:
    chunks: int = 4
    chunk_tokens: int = 10
    first_delay: float = 0.0
    delay: float = 0.0  # before each later chunk
    held: bool = False  # no later chunk is made while it is
    error: Exception | None = None
    error_at: int = 0  # the chunk in whose place the error comes
    finish: FinishReason | None = "stop"
    retries: int = 0  # that are told
    poison: bool = False  # samples that are not numbers
    speech: bool = True
    ready: bool = True
    sessions: int = 0
    made: int = 0  # chunks
    open_sessions: int = 0
    most_open: int = 0
    embedded: int = 0
    embed_held: bool = False  # no voice is learned while it is
    embedding: list[str] = field(default_factory=list)  # texts of recordings, in their order
    embed_left: int = 0  # recordings whose clients did not wait
    closed: bool = False
    voices: dict[str, Voice] = field(default_factory=lambda: {"default": DEFAULT_VOICE})
    requests: list[SpeechRequest] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # that came in pieces, when they are whole

    @property
    def model(self) -> ModelInfo:
        return ModelInfo("sine", FORMAT, self.speech, self.voices)

    @property
    def samples(self) -> Floats:
        """What every request hears."""
        return sine(self.chunks * self.chunk_tokens * SAMPLES_PER_TOKEN)

    async def open(self, request: SpeechRequest) -> AsyncIterator[AudioChunk]:
        self.requests.append(request)
        self.sessions += 1
        self.open_sessions += 1
        self.most_open = max(self.most_open, self.open_sessions)
        try:
            async with reading(request.text) as text:
                async for chunk in self._hum(text):
                    yield chunk
        finally:
            self.open_sessions -= 1

    async def _hum(self, text: Text) -> AsyncIterator[AudioChunk]:
        """Begins with the first piece of the text, and doesn't end before it; but `length` does."""
        size = self.chunk_tokens * SAMPLES_PER_TOKEN
        for index, samples in enumerate(np.split(self.samples, self.chunks)):
            last = index == self.chunks - 1
            if index == 0:
                await text.begin()
            if last and self.finish != "length":
                self.texts.append(await text.whole())
            if pause := (self.delay if index else self.first_delay):
                await asyncio.sleep(pause)
            while index and self.held:
                await asyncio.sleep(0.001)
            if self.error and index == self.error_at:
                raise self.error
            self.made += 1
            yield AudioChunk(
                samples=samples * np.nan if self.poison else samples,
                index=index,
                start=index * size / SAMPLE_RATE,
                tokens=self.chunk_tokens,
                finish=self.finish if last else None,
                text_tokens=0 if index else 7,
                timeline=LAST if last else None if index else FIRST,
                retries=self.retries if last else 0,
            )

    async def embed(self, recording: Recording) -> Voice:
        self.embedded += 1
        self.embedding.append(recording.text)
        try:
            while self.embed_held:
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.embed_left += 1
            raise
        if recording.seconds < 0.5:
            raise AudioError("the recording is too short")
        return voice_of(
            int(25 * recording.seconds),
            recording.text,
            name=recording.name,
            language=recording.language,
            consent=recording.consent,
            created="2026-05-01T12:00:00+00:00",
        )

    def stats(self) -> EngineStats:
        return EngineStats(
            ready=self.ready,
            waiting=0,
            running=self.open_sessions,
            slots=8,
            sessions=self.sessions,
            tokens=self.sessions * self.chunks * self.chunk_tokens,
            lm_seconds=1.5,
            token2wav_seconds=0.5,
        )

    async def close(self) -> None:
        self.closed = True
