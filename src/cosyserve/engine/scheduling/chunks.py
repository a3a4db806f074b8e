"""Sessions' chunks on their way through the token2wav: which go next, and those that have come out.

Knows no LM and no sink. First chunks of streams go before later ones and whole texts, these in the
order in which listeners would run dry. Where the token2wav allows it, first chunks don't wait.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyserve.contracts import Floats
from cosyserve.engine.compute.token2wav import PendingAudio, Token2WavState
from cosyserve.engine.scheduling.session import Session, Utterance


class Token2WavLike(Protocol):
    """What is asked of a token2wav: `Token2Wav`, or a stand-in."""

    @property
    def max_in_flight(self) -> int:
        """Calls without urgent chunks that may be on their way at once."""
        ...

    def max_batch(self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> int:
        """How many of these chunks, from the first on, are best computed in one call."""
        ...

    def start(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
        *,
        urgent: bool,
    ) -> PendingAudio:
        """Urgent chunks and others are computed beside each other, or else at once."""
        ...

    def warm_up(self) -> int: ...

    def reserve(self) -> None: ...


@dataclass(frozen=True)
class Job:
    """Chunks that are computed together."""

    utterances: list[tuple[Session, Utterance]]
    spoken: PendingAudio
    begun: float

    @property
    def wanted(self) -> list[tuple[Session, Utterance]]:
        """Those whose session is still there."""
        return [(s, u) for s, u in self.utterances if s.utterances and s.utterances[0] is u]


class Chunks:
    def __init__(self, token2wav: Token2WavLike, clock: Callable[[], float]) -> None:
        self.token2wav, self.clock = token2wav, clock
        self.seconds = 0.0  # that chunks took
        self._jobs: dict[bool, list[Job]] = {True: [], False: []}  # by whether they are urgent
        self._heard_at = {True: 0.0, False: 0.0}  # when the last of them had come out

    def __bool__(self) -> bool:
        """Whether any are on their way."""
        return any(self._jobs.values())

    @property
    def first(self) -> bool:
        """Whether first ones of streams are."""
        return bool(self._jobs[True])

    def due(self, running: Sequence[Session]) -> list[Session]:
        """Sessions whose next chunk can be computed now, in one call. Another call is queued behind
        one on its way if it is full: then a GPU never waits for the host."""
        now = self.clock()
        jobs = itertools.chain(*self._jobs.values())
        taken = {session for job in jobs for session, _ in job.utterances}
        ready = [s for s in running if s not in taken and s.utterances[0].ready]
        for session in ready:
            session.due_since = now if session.due_since is None else session.due_since
        ready.sort(key=lambda s: (s.slack(now), s.number))
        for urgent in (True, False):
            queued = len(self._jobs[urgent])
            if queued < (1 if urgent else self.token2wav.max_in_flight):
                chosen, left = self._fitting([s for s in ready if s.urgent == urgent])
                if chosen and (left or not queued):
                    return chosen
        return []

    def start(self, sessions: Sequence[Session]) -> None:
        utterances = [(session, session.utterances[0]) for session in sessions]
        urgent = sessions[0].urgent
        self._jobs[urgent].append(self._started(utterances, urgent))

    def finished(self) -> list[tuple[Session, Floats | Exception]]:
        """What has come out since the last call."""
        found: list[tuple[Session, Floats | Exception]] = []
        for urgent, jobs in self._jobs.items():
            while jobs and jobs[0].spoken.ready:
                found += self._heard(jobs.pop(0), urgent)
        return found

    def _fitting(self, ready: Sequence[Session]) -> tuple[list[Session], int]:
        """Those to compute next in one call, and how many are left for another."""
        same = [s for s in ready if s.request.stream == ready[0].request.stream]
        utterances = [session.utterances[0] for session in same]
        states, tokens = [u.state for u in utterances], [u.due() for u in utterances]
        room = self.token2wav.max_batch(states, tokens) if same else 0
        return same[:room], len(same[room:])

    def _started(self, utterances: list[tuple[Session, Utterance]], urgent: bool) -> Job:
        begun = self.clock()
        states = [u.state for _, u in utterances]
        tokens = [u.due() for _, u in utterances]
        final = [u.final for _, u in utterances] if utterances[0][1].stream else None
        try:
            spoken: PendingAudio = self.token2wav.start(states, tokens, final, urgent=urgent)
        except Exception as error:
            spoken = FailedAudio(error)
        return Job(utterances, spoken, begun)

    def _heard(self, job: Job, urgent: bool) -> list[tuple[Session, Floats | Exception]]:
        try:
            spoken = job.spoken.get()
        except Exception as error:
            wanted = job.wanted
            if len(job.utterances) == 1:
                return [(session, error) for session, _ in wanted]
            # Whoever is to blame must not take the others along.
            alone = [self._heard(self._started([one], urgent), urgent) for one in wanted]
            return list(itertools.chain.from_iterable(alone))
        now = self.clock()
        self.seconds += now - max(job.begun, self._heard_at[urgent])
        self._heard_at[urgent] = now
        by_utterance = {u: found for (_, u), found in zip(job.utterances, spoken, strict=True)}
        heard: list[tuple[Session, Floats | Exception]] = []
        for session, utterance in job.wanted:
            samples, utterance.state = by_utterance[utterance]
            heard.append((session, samples))
        return heard


@dataclass(frozen=True)
class FailedAudio:
    """What could not even be started."""

    error: Exception
    ready: bool = True

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        raise self.error
