"""Flow and vocoder as a service, for many streams at once: chunks that are due share a call."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.limits import OFFLINE_SLACK, POLL_SECONDS
from cosyserve.engine.compute.playback import Playback
from cosyserve.engine.compute.profile import LATENCY
from cosyserve.engine.compute.queued_audio import Token2WavState
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.engine.scheduling.chunks import Chunks, Token2WavLike
from cosyserve.engine.split.service import Leave, ServiceThread
from cosyserve.errors import CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.vocoder.hift import HiFT

ChunkSink = Callable[["Floats | CosyError"], None]

_numbers = itertools.count()


@dataclass(eq=False)
class ChunkRequest:
    """A chunk to compute. Implements `ChunkSource`."""

    state: Token2WavState
    tokens: Sequence[int]
    final: bool
    stream: bool
    urgent: bool
    deadline: float  # when its listener has nothing left to hear
    done: bool = False
    sink: ChunkSink = lambda _: None
    opened: float = field(default_factory=time.monotonic)
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def growing(self) -> bool:
        return False

    @property
    def spare(self) -> int:
        return 0

    def extend(self) -> None:
        """It has the tokens that it was given."""

    def due(self) -> Sequence[int]:
        return self.tokens

    def slack(self, now: float) -> float:
        return self.deadline - now


class ChunkQueue:
    def __init__(self, token2wav: Token2WavLike) -> None:
        self.waiting: list[ChunkRequest] = []
        self._chunks: Chunks[ChunkRequest] = Chunks(token2wav, time.monotonic)
        self.waited_seconds = 0.0  # until they were computed, of all chunks together

    def open(self, chunk: ChunkRequest) -> None:
        self.waiting.append(chunk)

    def cancel(self, chunk: ChunkRequest) -> None:
        chunk.done = True
        if chunk in self.waiting:
            self.waiting.remove(chunk)

    def step(self) -> bool:
        # It is not told who streams.
        chosen = self._chunks.choose(self.waiting, streaming=True)
        if chosen:
            now = time.monotonic()
            self.waited_seconds += sum(now - chunk.opened for chunk in chosen)
            self._chunks.start(chosen)
            self.waiting = [chunk for chunk in self.waiting if chunk not in chosen]
        finished = self._chunks.finished()
        for chunk, samples in finished:
            chunk.done = True
            chunk.sink(client_error(samples) if isinstance(samples, Exception) else samples)
        if self._chunks and not (chosen or finished):
            time.sleep(POLL_SECONDS)
        return not self.idle

    @property
    def idle(self) -> bool:
        return not (self.waiting or self._chunks)

    def check_idle(self) -> None:
        """Nothing is held but what is due: state belongs to the streams."""


class Token2WavService:
    """Implements `Token2WavBackend`."""

    def __init__(self, flow: Flow, vocoder: HiFT) -> None:
        self.token2wav = Token2Wav(flow, vocoder, LATENCY.rows)
        warm_up({"token2wav": self.token2wav}, LATENCY.slots)
        self.streams = 0  # open
        self._thread = ServiceThread(ChunkQueue(self.token2wav), "token2wav")

    @property
    def waited_seconds(self) -> float:
        """How long all chunks together have waited for others."""
        return self._thread.part.waited_seconds

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> ServiceStream:
        state = self.token2wav.begin(voice, with_prompt=with_prompt, seed=seed, speed=speed)
        return ServiceStream(self, state, stream)

    async def compute(self, chunk: ChunkRequest) -> Floats:
        """The samples of a chunk, which then holds the state behind them."""

        def enter(queue: ChunkQueue, sink: ChunkSink) -> Leave[ChunkQueue]:
            chunk.sink = sink
            queue.open(chunk)
            return lambda queue: queue.cancel(chunk)

        async with aclosing(self._thread.listen(enter)) as results:
            return await anext(results)

    async def close(self) -> None:
        await self._thread.close()


class ServiceStream:
    """Implements `Token2WavStream`."""

    def __init__(self, service: Token2WavService, state: Token2WavState, stream: bool) -> None:
        self._service = service
        self._stream = stream
        self._state: Token2WavState | None = state
        self._playback = Playback()
        service.streams += 1

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        assert self._state, "the stream is closed"
        chunk = ChunkRequest(
            state=self._state,
            tokens=tokens,
            final=final,
            stream=self._stream,
            urgent=self._stream and not self._playback.chunks,
            deadline=self._playback.end if self._stream else time.monotonic() + OFFLINE_SLACK,
        )
        samples = await self._service.compute(chunk)
        self._state = chunk.state
        self._playback.send(samples, len(tokens), time.monotonic())
        return samples

    async def close(self) -> None:
        if self._state:
            self._state = None
            self._service.streams -= 1
