"""A request's speech as bytes: chunks in, framed audio out, the session closed at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from cosyserve.audio.silence import Onset, SilenceTrim
from cosyserve.audio.watermark import Watermark, WatermarkStream
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Engine, SpeechRequest
from cosyserve.engine.text_stream import by_sentence_async
from cosyserve.errors import AudioError, CosyError, WorkerError
from cosyserve.gateway.speech.framing import Framing, Usage
from cosyserve.gateway.speech.token_limit import TokenLimit
from cosyserve.gateway.speech.word_times import Spoken, WordClock, WordTimes
from cosyserve.gateway.telemetry import audit
from cosyserve.gateway.telemetry.record import Record
from cosyserve.text.sentences import Split

TellWords = Callable[[WordTimes], Awaitable[None]]


class Speaking:
    def __init__(
        self,
        engine: Engine,
        request: SpeechRequest,
        framing: Framing,
        record: Record,
        max_tokens: int | None = None,
        *,
        watermark: Watermark | None,
        trim: bool = False,
        timestamps: bool = False,
        split: Split | None = None,
    ) -> None:
        """`max_tokens`: of speech, after which it ends with the reason `length`; `watermark`: on
        voices that are not the model's own; `trim`: silence before it is left out; `timestamps`: it
        is followed when which word is heard; `split`: what is spoken for itself of a text that
        arrives, where that is not left to the model."""
        self._engine = engine
        self._limit = TokenLimit(max_tokens, request.speed) if max_tokens else None
        self._clock = WordClock(request) if timestamps else None
        self._request = self._clock.request if self._clock else request
        self._split = split
        self._framing = framing
        self._record = record
        self._underruns = Underruns()
        self._trim = SilenceTrim() if trim else None
        self._onset = Onset()
        record.model = engine.model.name
        self._mark: WatermarkStream | None = None
        if all(request.voice is not own for own in engine.model.voices.values()):
            self._mark = WatermarkStream(watermark) if watermark else None
            audit.note("voice.spoken", record, request.voice, watermark=self._mark is not None)

    async def audio(self, tell: TellWords | None = None) -> AsyncGenerator[bytes, None]:
        """Bytes as they are made; the engine is asked for a chunk only when the last was taken.

        Words are told behind the audio in which they are heard.
        """
        started = time.perf_counter()
        with self._framing.encoder:
            async with aclosing(self._open()) as chunks:
                async for made in chunks:
                    chunk = self._trimmed(self._limit.push(made) if self._limit else made)
                    self._take(chunk)
                    if len(chunk.samples) or chunk.final:
                        data = await self._encoded(chunk)
                        sent = time.perf_counter() - self._record.started
                        if self._record.first_audio is None:
                            self._record.first_audio = sent
                        yield data
                        await asyncio.sleep(0)  # the loop sends it, and serves others, first
                        self._note_audible(chunk, sent)
                        if self._clock and tell:
                            told = await asyncio.to_thread(self._clock.listen, chunk)
                            if told:
                                await tell(WordTimes.of(told))
                    if chunk.final:
                        break
            if not self._record.finish:
                raise WorkerError("the speech ended before it was finished")
            if isinstance(self._request.text, str):  # else it took as long as the text did
                self._record.speaking_seconds = time.perf_counter() - started
            yield await self._framing.finish(self._record.finish, self.usage)

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(
            input_tokens=self._record.text_tokens,
            output_tokens=self._record.tokens,
            total_tokens=self._record.text_tokens + self._record.tokens,
        )

    @property
    def spoken(self) -> Spoken | None:
        """What is heard, if words are followed: so far, or of a speech that has ended."""
        if self._clock is None:
            return None
        ended = self._record.finish not in ("", "cancelled")
        unheard = 0.0 if ended else self._underruns.unheard(time.perf_counter())
        return self._clock.spoken(max(0.0, self._record.audio_seconds - unheard))

    def _open(self) -> AsyncGenerator[AudioChunk, None]:
        if self._split is None or isinstance(self._request.text, str):
            return self._engine.open(self._request)
        return by_sentence_async(self._request, self._engine.open, self._split)

    def _trimmed(self, chunk: AudioChunk) -> AudioChunk:
        if self._trim is None:
            return chunk
        return replace(chunk, samples=self._trim.push(chunk.samples, last=chunk.final))

    def _note_audible(self, chunk: AudioChunk, sent: float) -> None:
        """The chunk, sent so long after the request, may be the first that is no silence."""
        record = self._record
        if record.first_audible is None and record.first_audio is not None:
            self._onset.push(chunk.samples)
            if self._onset.at is not None:
                record.first_audible = max(sent, record.first_audio + self._onset.at / SAMPLE_RATE)

    def _take(self, chunk: AudioChunk) -> None:
        if chunk.finish in ("error", "cancelled"):
            raise WorkerError(f"the speech was not finished: {chunk.finish}")
        self._record.finish = chunk.finish or ""
        self._record.tokens += chunk.tokens
        self._record.text_tokens += chunk.text_tokens
        self._record.retries += chunk.retries
        seconds, now = len(chunk.samples) / SAMPLE_RATE, time.perf_counter()
        if seconds:
            self._underruns.take(seconds, now)
        self._record.take_chunk(chunk.timeline, now, heard=seconds > 0)
        self._record.audio_seconds += seconds
        self._record.underruns = self._underruns.count
        self._record.underrun_seconds = self._underruns.seconds

    async def _encoded(self, chunk: AudioChunk) -> bytes:
        began, samples = time.perf_counter(), chunk.samples
        try:
            if self._mark:
                samples = await asyncio.to_thread(self._mark.push, samples)
            data = await self._framing.push(samples)
        except AudioError as error:  # not the client's audio: an AudioError would blame it
            raise CosyError(f"the model made audio that can't be encoded: {error}") from error
        self._record.take_encoding(began, time.perf_counter())
        return data


class Underruns:
    """The chunks that come too late for a listener who plays from the first one on, and waits when
    there is nothing to play."""

    def __init__(self) -> None:
        self._silent_from: float | None = None
        self.count = 0
        self.seconds = 0.0  # of silence, in all

    def unheard(self, now: float) -> float:
        """Seconds that the listener has got, but not played yet."""
        return max(0.0, self._silent_from - now) if self._silent_from else 0.0

    def take(self, seconds: float, now: float) -> None:
        if self._silent_from is None:
            self._silent_from = now
        elif now > self._silent_from:
            self.count += 1
            self.seconds += now - self._silent_from
        self._silent_from = max(self._silent_from, now) + seconds
