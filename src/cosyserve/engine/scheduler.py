"""Advances all sessions together: the LM one token, then the chunks that are due.

Knows no process and no protocol; chunks and errors go to each session's sink. First chunks go
before later ones, later ones in the order in which listeners would run dry.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from cosyserve.contracts import CosyError, EngineStats, Floats, SpeechRequest
from cosyserve.engine.generation import Generation
from cosyserve.engine.lm_runner import LMRunner
from cosyserve.engine.pace import Pace
from cosyserve.engine.plan import check_arrived, plan
from cosyserve.engine.questions import check_text
from cosyserve.engine.session import Session, Sink, Utterance
from cosyserve.engine.token2wav import Token2Wav, Voicing
from cosyserve.models.bistream import Bistream
from cosyserve.models.model import Model
from cosyserve.text.reading import Reader, read_numbers

SLOTS = 8  # sessions that run at once
WAITING = 64  # sessions that may wait
MAX_WAIT = 1.0  # seconds that one may have to wait
POSITIONS = 4096  # of the LM, for prompt, text and speech of an utterance
BATCH = 8  # chunks that are computed in one call
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 256, 4096  # that these may have together
SILENCE = 1e-4  # an utterance that never gets louder is no speech

log = logging.getLogger(__name__)


class Rows(Protocol):
    """What the scheduler asks of an LM: `LMRunner`, or a stand-in."""

    rows: list[Generation]

    @property
    def free(self) -> int: ...

    def join(self, row: Generation) -> None: ...

    def leave(self, row: Generation) -> None: ...

    def step(self) -> bool: ...


class Speech(Protocol):
    """What it asks of a token2wav."""

    def advance(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> list[tuple[Floats, Voicing]]: ...

    def whole(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]
    ) -> list[tuple[Floats, Voicing]]: ...


class Scheduler:
    def __init__(
        self,
        lm: Rows,
        token2wav: Speech,
        plan: Callable[[SpeechRequest, Reader], list[Utterance]],
        *,
        slots: int = SLOTS,
        waiting: int = WAITING,
        max_wait: float = MAX_WAIT,
        batch_tokens: int = CPU_BATCH_TOKENS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lm, self.token2wav, self.plan = lm, token2wav, plan
        self.slots, self.limit, self.clock = slots, waiting, clock
        self.batch_tokens, self.max_wait = batch_tokens, max_wait
        self.running: list[Session] = []
        self.waiting: deque[Session] = deque()
        self._pace = Pace()
        self._opened = self._tokens = 0
        self._lm_seconds = self._token2wav_seconds = 0.0

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        slots: int = SLOTS,
        waiting: int = WAITING,
        max_wait: float = MAX_WAIT,
    ) -> Scheduler:
        """The scheduler of a model."""
        lm, _ = model.need_lm()
        token2wav = Token2Wav(*model.need_token2wav())
        on_cpu = lm.head.weight.device.type == "cpu"
        return cls(
            LMRunner(lm, slots, POSITIONS),
            token2wav,
            lambda request, read: plan(model, token2wav, request, POSITIONS, read),
            slots=slots,
            waiting=waiting,
            max_wait=max_wait,
            batch_tokens=CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS,
        )

    def open(self, request: SpeechRequest, sink: Sink) -> Session:
        """A new session, planned here and now; its chunks, or one error, go to the sink."""
        session = self.enter(request, sink)
        try:
            self.begin(session, self.plan(request, read_numbers))
        except Exception as error:  # whoever asked must hear of it, not wait for ever
            self.cancel(session)
            raise told(error) from error
        return session

    def enter(self, request: SpeechRequest, sink: Sink) -> Session:
        """A new session with a place in the queue; it can't run before `begin`."""
        ahead = len(self.waiting)
        full = ahead + len(self.running) >= self.limit + self.slots
        self._pace.check(ahead, full=full, max_wait=self.max_wait)
        session = Session(request, sink)
        self.waiting.append(session)
        self._opened += 1
        return session

    def begin(self, session: Session, utterances: list[Utterance]) -> None:
        """The session's plan is made."""
        if not session.done:
            session.utterances = utterances
            session.text_tokens = sum(utterance.text_tokens for utterance in utterances)

    def push(self, session: Session, text: Sequence[int]) -> None:
        """More text ids of a session whose text arrives piece by piece."""
        for utterance in session.utterances:
            stream = utterance.generation.text
            if isinstance(stream, Bistream):
                check_text(text, stream.config.text_vocab)
                session.text_tokens += len(text)
                check_arrived(session.text_tokens)
                stream.push(text)

    def end(self, session: Session) -> None:
        """The text that arrived piece by piece is over."""
        for utterance in session.utterances:
            if isinstance(utterance.generation.text, Bistream):
                utterance.generation.text.end()

    def cancel(self, session: Session) -> None:
        """Frees all that the session holds; nothing more goes to its sink."""
        if session in self.waiting:
            self.waiting.remove(session)
        if session in self.running:
            self.running.remove(session)
            for utterance in session.utterances:
                self._leave(utterance.generation)
        session.utterances = []  # whoever still knows the session holds no tensor by that
        session.done = True

    def step(self) -> bool:
        """One turn for everybody. False: nothing to do until something arrives."""
        self._admit()
        spoke = self._advance_lm()
        due = self._due()
        if due:
            self._voice(due)
        return spoke or bool(due)

    def stats(self) -> EngineStats:
        return EngineStats(
            ready=True,
            waiting=len(self.waiting),
            running=len(self.running),
            sessions=self._opened,
            tokens=self._tokens,
            lm_seconds=self._lm_seconds,
            token2wav_seconds=self._token2wav_seconds,
        )

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting)

    def check_idle(self) -> None:
        """At rest nothing may be held."""
        assert self.idle, "sessions are open"
        assert not self.lm.rows, "rows of the LM are taken, but no session is open"

    def _admit(self) -> None:
        planned = [session for session in self.waiting if session.utterances]
        for session in planned[: self.slots - len(self.running)]:
            self.waiting.remove(session)
            self.running.append(session)
        for session in self.running:
            # The LM may run ahead of the voice: one utterance of a session at a time.
            following = (u for u in session.utterances if u.generation.finish is None)
            utterance = next(following, None)
            if utterance and utterance.generation not in self.lm.rows and self.lm.free:
                self.lm.join(utterance.generation)

    def _advance_lm(self) -> bool:
        begun = self.clock()
        before = sum(len(row.tokens) for row in self.lm.rows)
        try:
            worked = self.lm.step()
        except Exception as error:
            reason = told(error)
            for session in list(self.running):
                if any(u.generation in self.lm.rows for u in session.utterances):
                    self.fail(session, reason)
            return True
        self._tokens += sum(len(row.tokens) for row in self.lm.rows) - before
        for row in [row for row in self.lm.rows if row.finish is not None]:
            self._leave(row)
        self._lm_seconds += self.clock() - begun
        return worked

    def _due(self) -> list[Session]:
        """Sessions whose next chunk is computed now, in one call."""
        now = self.clock()
        ready = [session for session in self.running if session.utterances[0].ready]
        ready.sort(key=lambda s: (s.first_sent is not None, s.slack(now), s.number))
        same = [
            session
            for session in ready
            if (session.first_sent is None, session.request.stream)
            == (ready[0].first_sent is None, ready[0].request.stream)
        ]
        # Long chunks gain nothing from company on a CPU, and nobody's first one can interrupt them.
        tokens = itertools.accumulate(len(s.utterances[0].due()) for s in same[:BATCH])
        return same[: max(1, sum(count <= self.batch_tokens for count in tokens))]

    def _voice(self, sessions: list[Session]) -> None:
        sessions = [session for session in sessions if not self._hopeless(session)]
        if not sessions:
            return
        begun = self.clock()
        try:
            spoken = self._compute([session.utterances[0] for session in sessions])
        except Exception as error:
            if len(sessions) > 1:  # whoever is to blame must not take the others along
                for session in sessions:
                    self._voice([session])
                return
            self.fail(sessions[0], told(error))
            return
        self._token2wav_seconds += self.clock() - begun
        for session, samples in zip(sessions, spoken, strict=True):
            self._deliver(session, samples)

    def _compute(self, utterances: list[Utterance]) -> list[Floats]:
        voicings = [u.voicing for u in utterances]
        tokens = [u.due() for u in utterances]
        if utterances[0].stream:
            final = [u.final for u in utterances]
            found = self.token2wav.advance(voicings, tokens, final)
        else:
            found = self.token2wav.whole(voicings, tokens)
        for utterance, (_, voicing) in zip(utterances, found, strict=True):
            utterance.voicing = voicing
        return [samples for samples, _ in found]

    def _deliver(self, session: Session, samples: Floats) -> None:
        utterance = session.utterances[0]
        utterance.loudest = max(utterance.loudest, float(np.abs(samples).max(initial=0.0)))
        ended, tokens = utterance.final, utterance.advanced()
        if ended and utterance.loudest < SILENCE:
            self._again(session, CosyError("the model was silent: try another seed or voice"))
            return
        last = ended and len(session.utterances) == 1
        session.send(samples, tokens, self.clock(), last)
        if ended:
            session.utterances.pop(0)
        if last:
            self.running.remove(session)
            self._pace.ended(self.clock(), len(self.waiting))

    def _hopeless(self, session: Session) -> bool:
        """Whether the LM's work can't be voiced; then it is tried again or given up."""
        generation = session.utterances[0].generation
        if not session.utterances[0].final:
            return False
        if generation.finish == "error":
            self._again(session, CosyError("the speech LM computed NaN: its weights are broken"))
        elif generation.finish is not None and not generation.tokens:
            self._again(session, CosyError("the model ended before it said anything"))
        elif generation.finish == "length" and not session.chunks and not session.attempts:
            self._again(session, CosyError("the model never came to an end"))
        else:
            return False
        return True

    def _again(self, session: Session, error: CosyError) -> None:
        """One more attempt with another seed, if nothing was sent yet."""
        utterance = session.utterances[0]
        if session.chunks or session.attempts or isinstance(utterance.generation.text, Bistream):
            self.fail(session, error)
            return
        session.attempts += 1
        utterance.begin_again(session.attempts)

    def fail(self, session: Session, error: CosyError) -> None:
        """Ends the session with an error, unless it has ended."""
        if not session.done:
            self.cancel(session)
            session.fail(error)

    def _leave(self, generation: Generation) -> None:
        if generation in self.lm.rows:
            self.lm.leave(generation)


def told(error: Exception) -> CosyError:
    """What a client may hear of an error; what it may not goes to the log."""
    if isinstance(error, CosyError):
        return error
    log.error("unexpected error", exc_info=error)
    return CosyError("internal error, see the log")
