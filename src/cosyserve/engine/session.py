"""A session: one request and all of its state, until its last chunk or its end by force.

Knows no other session. A long text is several utterances, spoken one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cosyserve.contracts import SAMPLE_RATE, AudioChunk, CosyError, Floats, SpeechRequest
from cosyserve.engine.generation import Generation
from cosyserve.engine.hops import hop_ends
from cosyserve.engine.token2wav import Voicing

Sink = Callable[[AudioChunk | CosyError], None]


@dataclass(eq=False)
class Utterance:
    """A part of the text on its way from the LM to samples."""

    generation: Generation
    voicing: Voicing
    stream: bool
    make: Callable[[int], Generation]  # the generation of another attempt
    spoken: int = 0  # tokens turned into audio
    loudest: float = 0.0
    _ends: Iterator[int] = field(init=False)
    _end: int = field(init=False)

    def __post_init__(self) -> None:
        self._ends = hop_ends(self.voicing.prompt_tokens, self.voicing.grid)
        self._end = next(self._ends)

    @property
    def ready(self) -> bool:
        """Enough tokens for the next chunk."""
        if self.generation.finish is not None:
            return True
        return self.stream and len(self.generation.tokens) >= self._end + self.voicing.lookahead

    @property
    def final(self) -> bool:
        """Whether the next chunk is the last."""
        return self.generation.finish is not None

    def due(self) -> list[int]:
        """All tokens that the next chunk is computed from."""
        tokens = self.generation.tokens
        return tokens if self.final else tokens[: self._end + self.voicing.lookahead]

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
    request: SpeechRequest
    sink: Sink
    utterances: list[Utterance]  # the first is the one being voiced
    number: int = field(default_factory=lambda: next(_numbers))
    chunks: int = 0
    samples: int = 0
    first_sent: float | None = None
    attempts: int = 0
    done: bool = False

    def slack(self, now: float) -> float:
        """Seconds of audio that a listener still has."""
        played = 0.0 if self.first_sent is None else now - self.first_sent
        return self.samples / SAMPLE_RATE - played

    def send(self, samples: Floats, tokens: int, now: float, last: bool) -> None:
        finish = self.utterances[0].generation.finish if last else None
        start = self.samples / SAMPLE_RATE
        chunk = AudioChunk(samples, self.chunks, start, tokens, finish)
        self.chunks, self.samples = self.chunks + 1, self.samples + len(samples)
        if self.first_sent is None:
            self.first_sent = now
        self.done = last
        self.sink(chunk)

    def fail(self, error: CosyError) -> None:
        self.done = True
        self.sink(error)
