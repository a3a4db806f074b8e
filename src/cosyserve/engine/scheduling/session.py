"""A session: one request and all of its state, until its last chunk or its end by force.

Knows no other session. A long text is several utterances, spoken one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Floats, SpeechRequest
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.hops import NEVER, hop_ends, is_last
from cosyserve.engine.compute.token2wav import Token2WavState
from cosyserve.errors import CosyError

WHOLE_SLACK = 0.5  # seconds that a whole text may wait for its voice: a listener may have less
SATED = 0.5  # seconds of audio that let a listener wait for the LM

Sink = Callable[[AudioChunk | CosyError], None]


@dataclass(eq=False)
class Utterance:
    """A part of the text on its way from the LM to samples."""

    generation: Generation
    state: Token2WavState
    stream: bool
    make: Callable[[int], Generation]  # the generation of another attempt
    text_tokens: int = 0
    spoken: int = 0  # tokens turned into audio
    loudest: float = 0.0
    _ends: Iterator[int] = field(init=False)
    _end: int = field(init=False)
    _fresh: Token2WavState = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = self.state
        self._ends = hop_ends(self.state.prompt_tokens, self.state.grid, self.state.hop)
        self._end = next(self._ends)

    def begin_again(self, attempt: int) -> None:
        """As if nothing had been computed, with another seed."""
        self.generation, self.state = self.make(attempt), self._fresh
        self.spoken, self.loudest = 0, 0.0
        self.__post_init__()

    @property
    def ready(self) -> bool:
        """Enough tokens for the next chunk."""
        if self.generation.finish is not None:
            return True
        return len(self.generation.tokens) >= self._needed

    @property
    def final(self) -> bool:
        """Whether the next chunk is the last."""
        generation = self.generation
        return is_last(len(generation.tokens), self._needed, generation.finish)

    @property
    def _needed(self) -> int:
        """Tokens for another chunk that is not the last."""
        return self._end + self.state.lookahead if self.stream else NEVER

    def due(self) -> list[int]:
        """All tokens that the next chunk is computed from."""
        tokens = self.generation.tokens
        return tokens if self.final else tokens[: self._needed]

    def advanced(self) -> int:
        """The chunk was spoken -> the tokens that it took."""
        reached = len(self.generation.tokens) if self.final else self._end
        count, self.spoken = reached - self.spoken, reached
        while not self.final and self._end <= self.spoken:
            self._end = next(self._ends)
        return count


_numbers = itertools.count()


@dataclass(eq=False)
class Session:
    """Without utterances, it is still being planned."""

    request: SpeechRequest
    sink: Sink
    utterances: list[Utterance] = field(default_factory=list)  # the first is the one being voiced
    number: int = field(default_factory=lambda: next(_numbers))
    chunks: int = 0
    samples: int = 0
    text_tokens: int = 0
    first_sent: float | None = None
    due_since: float | None = None  # that its next chunk can be computed
    attempts: int = 0
    done: bool = False

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a first sound."""
        return self.request.stream and self.first_sent is None

    def slack(self, now: float) -> float:
        """Seconds of audio that a listener still has, or that a whole text may wait."""
        if not self.request.stream:
            return WHOLE_SLACK - (0.0 if self.due_since is None else now - self.due_since)
        played = 0.0 if self.first_sent is None else now - self.first_sent
        return self.samples / SAMPLE_RATE - played

    def sated(self, now: float) -> bool:
        return self.request.stream and self.slack(now) > SATED

    def send(self, samples: Floats, tokens: int, now: float, last: bool) -> None:
        finish = self.utterances[0].generation.finish if last else None
        start = self.samples / SAMPLE_RATE
        text_tokens = self.text_tokens if last else 0
        chunk = AudioChunk(samples, self.chunks, start, tokens, finish, text_tokens)
        self.chunks, self.samples = self.chunks + 1, self.samples + len(samples)
        if self.first_sent is None:
            self.first_sent = now
        self.due_since = None
        self.done = last
        self.sink(chunk)

    def fail(self, error: CosyError) -> None:
        self.done = True
        self.sink(error)
