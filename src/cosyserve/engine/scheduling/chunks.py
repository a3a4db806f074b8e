"""Chunks on their way through the token2wav: which go next, and those that have come out.

First chunks of streams go before later ones and whole texts, these in the order in which listeners
would run dry. Where the token2wav allows it, first chunks are computed beside the others, and later
ones are left until they are needed: the LM draws on meanwhile, and a chunk takes all tokens there
are. Under load first chunks are longer, so that most utterances are two chunks: what comes before
is computed again with every chunk.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cosyserve.contracts import Floats
from cosyserve.engine.compute.queued_audio import PendingAudio, Token2WavState


class ChunkSource(Protocol):
    """Whoever has a next chunk to compute: a session, or a stream of a token2wav service."""

    state: Token2WavState
    number: int  # in the order of arrival

    @property
    def stream(self) -> bool:
        """Whether its utterance is spoken in chunks, not as a whole."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a first sound."""
        ...

    @property
    def final(self) -> bool: ...

    @property
    def done(self) -> bool:
        """Whether it has left: nobody wants its chunk any more."""
        ...

    @property
    def growing(self) -> bool:
        """Whether its tokens become more by themselves: a later chunk would take them, too."""
        ...

    @property
    def spare(self) -> int:
        """Tokens that there are beyond those of the chunk."""
        ...

    def extend(self) -> None:
        """Lets the chunk take all tokens that there are by now."""
        ...

    def due(self) -> Sequence[int]:
        """All tokens that the chunk is computed from."""
        ...

    def slack(self, now: float) -> float:
        """Seconds that the chunk may still take."""
        ...


class Token2WavLike(Protocol):
    """What is asked of a token2wav: `Token2Wav`, or a stand-in."""

    @property
    def in_background(self) -> bool:
        """Whether the LM goes on while chunks are computed."""
        ...

    @property
    def whole_batches(self) -> int:
        """Batches of whole texts that are best computed at once."""
        ...

    def max_batch(
        self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]
    ) -> int: ...

    def start(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
        *,
        urgent: bool,
    ) -> PendingAudio: ...

    def warm_up(self) -> int: ...

    def reserve(self) -> None: ...


S = TypeVar("S", bound=ChunkSource)

NEEDED_SECONDS = 0.25  # before a listener runs dry, the next chunk is computed at the latest
LOADED_SECONDS = 0.06  # that a batch of later chunks takes where the device has much to do
LOADED_FOR = 0.5  # seconds behind such a batch


@dataclass(frozen=True)
class Batch(Generic[S]):
    """Chunks that are computed together."""

    sources: Sequence[S]
    audio: PendingAudio
    started: float


class Chunks(Generic[S]):
    def __init__(self, token2wav: Token2WavLike, clock: Callable[[], float]) -> None:
        self.token2wav = token2wav
        self.clock = clock
        self.seconds = 0.0  # spent computing
        self._loaded_until = 0.0
        self._running: dict[bool, deque[Batch[S]]] = {True: deque(), False: deque()}  # urgent?
        self._last_end = {True: 0.0, False: 0.0}

    def __bool__(self) -> bool:
        """Whether any are being computed."""
        return any(self._running.values())

    @property
    def begun(self) -> float | None:
        """When the oldest of them was; None: there are none."""
        return min(
            (batches[0].started for batches in self._running.values() if batches), default=None
        )

    @property
    def loaded(self) -> bool:
        """Whether the device has so much to do that a longer first chunk is worth its wait."""
        return self.clock() < self._loaded_until

    def choose(self, ready: Iterable[S], *, streaming: bool) -> list[S]:
        """Those whose chunk is computed next, in one call; none, if all must wait. Urgent ones and
        others have a call each at a time, and another when the device has all of the first: what
        comes meanwhile shares it. Whole texts may have several, unless somebody is `streaming`."""
        now = self.clock()
        running = itertools.chain.from_iterable(self._running.values())
        taken = {source for batch in running for source in batch.sources}
        order = sorted(
            (source for source in ready if source not in taken and self.is_due(source, now)),
            key=lambda source: (source.slack(now), source.number),
        )
        for urgent in (True, False):
            waiting = [source for source in order if source.urgent == urgent]
            if waiting and self._takes_more(urgent, streaming):
                for source in waiting:
                    source.extend()
                return self._batch(waiting)
        return []

    def start(self, sources: Sequence[S]) -> None:
        urgent = sources[0].urgent
        self._running[urgent].append(self._started(sources, urgent))

    def finished(self) -> list[tuple[S, Floats | Exception]]:
        """What has come out since the last call; each source has its new state."""
        results: list[tuple[S, Floats | Exception]] = []
        for urgent, batches in self._running.items():
            done = [batch.audio.poll() for batch in batches]  # each goes on
            for _ in itertools.takewhile(bool, done):
                results += self._results(batches.popleft(), urgent)
        return results

    def _takes_more(self, urgent: bool, streaming: bool) -> bool:
        batches = self._running[urgent]
        if urgent:
            return not batches
        most = 1 if streaming else self.token2wav.whole_batches
        return len(batches) <= most and sum(not batch.audio.launched for batch in batches) < most

    def is_due(self, source: S, now: float) -> bool:
        """Whether nothing is gained by waiting for more of its tokens."""
        if not (self.token2wav.in_background and source.growing):
            return True
        if source.urgent:
            return not self.loaded or source.spare >= source.state.grid
        return source.slack(now) <= NEEDED_SECONDS

    def _batch(self, order: Sequence[S]) -> list[S]:
        """Those of the most urgent one's kind that are computed with it."""
        same = [source for source in order if source.stream == order[0].stream]
        return same[: self.token2wav.max_batch([s.state for s in same], [s.due() for s in same])]

    def _started(self, sources: Sequence[S], urgent: bool) -> Batch[S]:
        started = self.clock()
        try:
            audio = self.token2wav.start(
                [source.state for source in sources],
                [source.due() for source in sources],
                [source.final for source in sources] if sources[0].stream else None,
                urgent=urgent,
            )
        except Exception as error:
            audio = FailedAudio(error)
        return Batch(sources, audio, started)

    def _results(self, batch: Batch[S], urgent: bool) -> list[tuple[S, Floats | Exception]]:
        try:
            outputs = batch.audio.get()
        except Exception as error:
            present = [source for source in batch.sources if not source.done]
            if len(batch.sources) == 1:
                return [(source, error) for source in present]
            # What is queued by halves would go on with the numbers of what is queued behind it.
            for other in self._running[urgent]:
                with suppress(Exception):  # it says so again when its turn has come
                    other.audio.get()
            # The one that fails must not take the others along.
            alone = [self._results(self._started([one], urgent), urgent) for one in present]
            return list(itertools.chain.from_iterable(alone))
        now = self.clock()
        took = now - max(batch.started, self._last_end[urgent])
        self._last_end[urgent] = now
        self.seconds += took
        if not urgent and took > LOADED_SECONDS:
            self._loaded_until = now + LOADED_FOR
        results: list[tuple[S, Floats | Exception]] = []
        for source, (samples, state) in zip(batch.sources, outputs, strict=True):
            if not source.done:
                source.state = state
                results.append((source, samples))
        return results


@dataclass(frozen=True)
class FailedAudio:
    """A batch that could not even be started."""

    error: Exception
    launched: bool = True

    def poll(self) -> bool:
        return True

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        raise self.error
