"""Flow and vocoder alone, for many streams at once: chunks that are due share a call.

Knows no text and no LM. First chunks of streams go before later ones and whole texts, these in the
order in which listeners would run dry.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from cosyserve.contracts import SAMPLE_RATE, Floats, Voice
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.profile import LATENCY
from cosyserve.engine.compute.token2wav import Token2Wav, Token2WavState
from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.engine.scheduling.session import WHOLE_SLACK
from cosyserve.engine.split.service import Leave, ServiceThread
from cosyserve.errors import CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.vocoder.hift import HiFT

Spoken = tuple[Floats, Token2WavState]
Sink = Callable[[Spoken | CosyError], None]

_numbers = itertools.count()


@dataclass
class Playback:
    """What a listener has heard of a stream."""

    begun: float | None = None
    samples: int = 0

    def send(self, samples: int) -> None:
        self.samples += samples
        self.begun = self.begun or time.monotonic()

    @property
    def first(self) -> bool:
        return self.begun is None

    @property
    def dry(self) -> float:
        """When the listener has heard all that was sent."""
        return 0.0 if self.begun is None else self.begun + self.samples / SAMPLE_RATE


@dataclass(eq=False)
class Chunk:
    """A chunk to compute: `dry` is when its listener has nothing left to hear."""

    state: Token2WavState
    tokens: Sequence[int]
    final: bool
    stream: bool
    first: bool
    dry: float
    sink: Sink
    number: int = field(default_factory=lambda: next(_numbers))


class ChunkQueue:
    def __init__(self, token2wav: Token2Wav) -> None:
        self.token2wav = token2wav
        self.due: list[Chunk] = []

    def open(self, chunk: Chunk) -> None:
        self.due.append(chunk)

    def cancel(self, chunk: Chunk) -> None:
        if chunk in self.due:
            self.due.remove(chunk)

    def step(self) -> bool:
        if not self.due:
            return False
        self.due.sort(key=lambda c: (not c.first, c.dry, c.number))
        kind = self.due[0].first, self.due[0].stream
        same = [chunk for chunk in self.due if (chunk.first, chunk.stream) == kind]
        max_batch = self.token2wav.max_batch([c.state for c in same], [c.tokens for c in same])
        chosen = same[:max_batch]
        for chunk in chosen:
            self.due.remove(chunk)
        self._compute(chosen)
        return True

    @property
    def idle(self) -> bool:
        return not self.due

    def check_idle(self) -> None:
        """Holds nothing but what is due: state belongs to the streams."""

    def _compute(self, chunks: list[Chunk]) -> None:
        states, tokens = [c.state for c in chunks], [c.tokens for c in chunks]
        try:
            if chunks[0].stream:
                spoken = self.token2wav.advance(states, tokens, [c.final for c in chunks])
            else:
                spoken = self.token2wav.whole(states, tokens)
        except Exception as error:
            if len(chunks) > 1:  # whoever is to blame must not take the others along
                for chunk in chunks:
                    self._compute([chunk])
            else:
                chunks[0].sink(client_error(error))
            return
        for chunk, found in zip(chunks, spoken, strict=True):
            chunk.sink(found)


class Token2WavService:
    """Implements `contracts.Token2WavBackend`; `open` counts its streams."""

    def __init__(self, flow: Flow, vocoder: HiFT) -> None:
        self.token2wav = Token2Wav(flow, vocoder, LATENCY.rows)
        warm_up({"token2wav": self.token2wav}, LATENCY.slots)
        self.open = 0
        self._alone = ServiceThread(ChunkQueue(self.token2wav), "token2wav")

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> Stream:
        state = self.token2wav.begin(voice, with_prompt=with_prompt, seed=seed, speed=speed)
        return Stream(self, state, stream)

    async def compute(
        self,
        state: Token2WavState,
        tokens: Sequence[int],
        *,
        final: bool,
        stream: bool,
        first: bool,
        dry: float,
    ) -> Spoken:
        """The next samples of a stream, and its state after them."""

        def enter(queue: ChunkQueue, sink: Sink) -> Leave[ChunkQueue]:
            chunk = Chunk(state, tokens, final, stream, first, dry, sink)
            queue.open(chunk)
            return lambda queue: queue.cancel(chunk)

        async with aclosing(self._alone.listen(enter)) as spoken:
            return await anext(spoken)

    async def close(self) -> None:
        await self._alone.close()


class Stream:
    """Implements `contracts.Token2WavStream`."""

    def __init__(self, backend: Token2WavService, state: Token2WavState, stream: bool) -> None:
        self._backend, self._stream = backend, stream
        self._state: Token2WavState | None = state
        self._playback = Playback()
        backend.open += 1

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        assert self._state, "the stream is closed"
        samples, self._state = await self._backend.compute(
            self._state,
            tokens,
            final=final,
            stream=self._stream,
            first=self._stream and self._playback.first,
            dry=self._playback.dry if self._stream else time.monotonic() + WHOLE_SLACK,
        )
        self._playback.send(len(samples))
        return samples

    async def close(self) -> None:
        if self._state:
            self._state = None
            self._backend.open -= 1
