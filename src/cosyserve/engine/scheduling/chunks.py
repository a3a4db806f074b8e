"""Chunks on their way through the token2wav: which go next, and those that have come out.

First chunks of streams go before later ones and whole texts, these in the order in which listeners
would run dry. Where the token2wav allows it, first chunks are computed beside the others, and later
ones are left until they are needed: the LM draws on meanwhile, and a chunk takes all tokens there
are, so that most utterances are two chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from cosyserve.contracts import Floats
from cosyserve.engine.compute.token2wav import PendingAudio, Token2WavState


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
    def max_in_flight(self) -> int:
        """Calls without urgent chunks that may be computed at once."""
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


@dataclass(frozen=True)
class Batch(Generic[S]):
    """Chunks that are computed together."""

    sources: Sequence[S]
    audio: PendingAudio
    started: float


@dataclass
class BatchQueue(Generic[S]):
    """Batches that are computed one after another."""

    urgent: bool
    batches: list[Batch[S]] = field(default_factory=list)
    last_end: float = 0.0  # when the newest result had come out


class Chunks(Generic[S]):
    def __init__(self, token2wav: Token2WavLike, clock: Callable[[], float]) -> None:
        self.token2wav = token2wav
        self.clock = clock
        self.seconds = 0.0  # spent computing
        self._urgent: BatchQueue[S] = BatchQueue(urgent=True)
        self._later: BatchQueue[S] = BatchQueue(urgent=False)

    def __bool__(self) -> bool:
        """Whether any are being computed."""
        return bool(self._urgent.batches or self._later.batches)

    @property
    def urgent(self) -> bool:
        """Whether first chunks of streams are being computed."""
        return bool(self._urgent.batches)

    def choose(self, ready: Iterable[S]) -> list[S]:
        """Those whose chunk is computed next, in one call; none, if all must wait.

        A second batch is queued behind a running one only if the first was full: the GPU then
        never waits for the host, and chunks that come soon can still share a call.
        """
        now = self.clock()
        batches = self._urgent.batches + self._later.batches
        taken = {source for batch in batches for source in batch.sources}
        order = sorted(
            (source for source in ready if source not in taken and self._is_due(source, now)),
            key=lambda source: (source.slack(now), source.number),
        )
        for source in order:
            source.extend()
        for queue, max_queued in ((self._urgent, 1), (self._later, self.token2wav.max_in_flight)):
            if len(queue.batches) < max_queued:
                chosen, left = self._batch([s for s in order if s.urgent == queue.urgent])
                if chosen and (left or not queue.batches):
                    return chosen
        return []

    def start(self, sources: Sequence[S]) -> None:
        queue = self._urgent if sources[0].urgent else self._later
        queue.batches.append(self._started(sources, queue.urgent))

    def finished(self) -> list[tuple[S, Floats | Exception]]:
        """What has come out since the last call; each source has its new state."""
        results: list[tuple[S, Floats | Exception]] = []
        for queue in (self._urgent, self._later):
            while queue.batches and queue.batches[0].audio.ready:
                results += self._results(queue.batches.pop(0), queue)
        return results

    def _is_due(self, source: S, now: float) -> bool:
        """Whether nothing is gained by waiting for more of its tokens."""
        if self.token2wav.max_in_flight == 1 or source.urgent or not source.growing:
            return True
        return source.slack(now) <= NEEDED_SECONDS

    def _batch(self, order: Sequence[S]) -> tuple[list[S], int]:
        """Those to compute in one call, and how many of their kind are left for another."""
        same = [source for source in order if source.stream == order[0].stream]
        if not same:
            return [], 0
        count = self.token2wav.max_batch([s.state for s in same], [s.due() for s in same])
        return same[:count], len(same) - count

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

    def _results(self, batch: Batch[S], queue: BatchQueue[S]) -> list[tuple[S, Floats | Exception]]:
        try:
            outputs = batch.audio.get()
        except Exception as error:
            present = [source for source in batch.sources if not source.done]
            if len(batch.sources) == 1:
                return [(source, error) for source in present]
            # The one that fails must not take the others along.
            alone = [self._results(self._started([one], queue.urgent), queue) for one in present]
            return list(itertools.chain.from_iterable(alone))
        now = self.clock()
        self.seconds += now - max(batch.started, queue.last_end)
        queue.last_end = now
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
    ready: bool = True

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        raise self.error
