"""Speaks with any speech LM and any token2wav, each of which may run anywhere.

Knows no weights, no process and no protocol: only what the two are asked, and when. The speech is
that of the engine in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import (
    SAMPLE_RATE,
    AudioChunk,
    FinishReason,
    Floats,
    LMBackend,
    LMRequest,
    Mode,
    SpeechRequest,
    Token2WavBackend,
)
from cosyserve.engine.compute.hops import HOP_TOKENS, NEVER, hop_ends, is_last
from cosyserve.engine.scheduling.lm_requests import SEGMENT_SEEDS, LMTask, questions
from cosyserve.engine.scheduling.scheduler import POSITIONS, SILENCE
from cosyserve.errors import CosyError, InputError, WorkerError
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.voices.fits import check_fits

PATIENCE = 60.0  # seconds without a token or a chunk, after which a backend counts as stuck


class HopelessError(CosyError):
    """An utterance that can't be voiced; another attempt may go better."""


@dataclass(eq=False)
class Said:
    """What the LM has said so far of an utterance."""

    asked: LMRequest
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    error: Exception | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, lm: LMBackend, heard: asyncio.Event) -> None:
        """`heard`: first audio was made. Before that no more is asked for than it needs, so that
        the LM may leave the processor to it."""
        try:
            async with aclosing(lm.generate(self.asked)) as pieces:
                async for piece in pieces:
                    self.tokens += piece.ids
                    self.finish = piece.finish
                    self.news.set()
                    if self.finish is None and len(self.tokens) >= self.asked.first_chunk:
                        await heard.wait()
        except Exception as error:
            self.error = error
        else:
            if self.finish is None:
                self.error = WorkerError("the speech LM left in the middle of the speech")
        self.news.set()

    async def reaches(self, count: int) -> None:
        """Returns when there are so many tokens, or all."""
        while self.finish is None and len(self.tokens) < count:
            if self.error:
                raise self.error
            self.news.clear()
            async with _patience("speech LM"):
                await self.news.wait()


class SplitEngine:
    """`open` is that of `contracts.Engine`."""

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
        self.model, self.lm, self.token2wav = model, lm, token2wav
        self._tokenizer, self._flow, self._read = model.text_tokenizer, model.config.flow, read

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order. Closing the iterator cancels the session, here and in both backends."""
        asked = await asyncio.to_thread(self._plan, request)
        session = Session(request, sum(question.text_tokens for question in asked))
        said = [Said(self._paced(request, question.attempt(0))) for question in asked]
        listening = [asyncio.create_task(_in_turn(self.lm, said, session.heard))]
        try:
            for number, question in enumerate(asked):
                last = number == len(asked) - 1
                try:
                    async with aclosing(self._utter(session, said[number], number, last)) as spoken:
                        async for chunk in spoken:
                            yield chunk
                except HopelessError:
                    if session.chunks:
                        raise
                    again = Said(self._paced(request, question.attempt(1)))
                    listening.append(asyncio.create_task(again.listen(self.lm, session.heard)))
                    session.attempts += 1
                    async with aclosing(self._utter(session, again, number, last)) as spoken:
                        async for chunk in spoken:
                            yield chunk
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)

    async def close(self) -> None:
        await self.lm.close()
        await self.token2wav.close()

    def _plan(self, request: SpeechRequest) -> list[LMTask]:
        if request.mode is Mode.CONVERT or not isinstance(request.text, str):
            raise InputError("neither 'convert' nor text in pieces is possible with this engine")
        check_fits(request.voice, self.model.config.voice_format)
        asked = questions(
            self.model.config, self._tokenizer, request, request.text, POSITIONS, self._read
        )
        if not asked:
            raise InputError("there is nothing to say in the text")
        return asked

    def _paced(self, request: SpeechRequest, asked: LMRequest) -> LMRequest:
        """Tokens are wanted when a chunk can be made of them."""
        if not request.stream:
            return replace(asked, first_chunk=NEVER)
        first = next(hop_ends(self._prompt_tokens(request), self._flow.grid))
        return replace(asked, first_chunk=first + self._flow.encoder.lookahead, chunk=HOP_TOKENS)

    def _prompt_tokens(self, request: SpeechRequest) -> int:
        """Of the flow."""
        if request.mode is Mode.PRESET:
            return 0
        return len(request.voice.speech_tokens) - request.voice.flow_start

    async def _utter(
        self, session: Session, said: Said, number: int, last: bool
    ) -> AsyncGenerator[AudioChunk, None]:
        request, lookahead = session.request, self._flow.encoder.lookahead
        stream = self.token2wav.begin(
            request.voice,
            with_prompt=request.mode is not Mode.PRESET,
            seed=request.seed + number * SEGMENT_SEEDS,
            speed=request.speed,
            stream=request.stream,
        )
        loudest, spoken = 0.0, 0
        try:
            for end in hop_ends(self._prompt_tokens(request), self._flow.grid):
                needed = end + lookahead if request.stream else NEVER
                await said.reaches(needed)
                final = is_last(len(said.tokens), needed, said.finish)
                if final:
                    session.check(said)
                tokens = said.tokens if final else said.tokens[:needed]
                async with _patience("token2wav"):
                    samples = await stream.advance(tokens, final=final)
                loudest = max(loudest, float(np.abs(samples).max(initial=0.0)))
                if final and loudest < SILENCE:
                    raise HopelessError("the model was silent: try another seed or voice")
                reached = len(tokens) if final else end
                finish = said.finish if final and last else None
                yield session.chunk(samples, reached - spoken, finish)
                spoken = reached
                if final:
                    return
        finally:
            await asyncio.shield(stream.close())


@dataclass
class Session:
    """What was sent of a request."""

    request: SpeechRequest
    text_tokens: int
    chunks: int = 0
    samples: int = 0
    attempts: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self, said: Said) -> None:
        """Whether the LM's work can be voiced."""
        if said.finish == "error":
            raise HopelessError("the speech LM computed NaN: its weights are broken")
        if said.finish is not None and not said.tokens:
            raise HopelessError("the model ended before it said anything")
        if said.finish == "length" and not self.chunks and not self.attempts:
            raise HopelessError("the model never came to an end")

    def chunk(self, samples: Floats, tokens: int, finish: FinishReason | None) -> AudioChunk:
        self.heard.set()
        text_tokens = self.text_tokens if finish else 0
        start = self.samples / SAMPLE_RATE
        made = AudioChunk(samples, self.chunks, start, tokens, finish, text_tokens)
        self.chunks, self.samples = self.chunks + 1, self.samples + len(samples)
        return made


async def _in_turn(lm: LMBackend, said: list[Said], heard: asyncio.Event) -> None:
    """The LM may run ahead of the voice: one utterance of a session at a time."""
    for utterance in said:
        await utterance.listen(lm, heard)


@asynccontextmanager
async def _patience(who: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise WorkerError(f"the {who} was silent for {PATIENCE:g} s") from None
