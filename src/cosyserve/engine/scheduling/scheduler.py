"""Advances all sessions together: the LM one token, then the chunks that are due.

Chunks and errors go to each session's sink. On a GPU the LM goes on while chunks are computed;
nothing here waits for them. A session whose text does not go on is preempted by one that waits for
its slot: when its text goes on it waits in its turn, and its row of the LM is computed anew.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cosyserve.choices import MAX_WAIT_SECONDS, MAX_WAITING
from cosyserve.contracts import EngineStats, Floats, SpeechRequest
from cosyserve.engine.compute.errors import client_error, is_fatal
from cosyserve.engine.compute.generation import Generation, LMLike
from cosyserve.engine.compute.limits import POLL_SECONDS
from cosyserve.engine.compute.profile import CPU_SLOTS
from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.engine.scheduling.admission import Admission, in_line, preemptable, requeue, runnable
from cosyserve.engine.scheduling.chunks import NEEDED_SECONDS, Token2WavLike
from cosyserve.engine.scheduling.plan import UtterancePlan
from cosyserve.engine.scheduling.session import AudioSink, Session, Utterance
from cosyserve.engine.scheduling.session_chunks import SessionChunks
from cosyserve.engine.scheduling.take import UnusableTakeError
from cosyserve.errors import CosyError
from cosyserve.models.lm.bistream import Bistream
from cosyserve.text.numbers import Reader, read_numbers


class Scheduler:
    def __init__(
        self,
        lm: LMLike,
        token2wavs: Sequence[Token2WavLike],
        plan: Callable[[SpeechRequest, Reader, int], Iterable[Utterance]],
        *,
        slots: int = CPU_SLOTS,
        max_waiting: int = MAX_WAITING,
        max_wait: float = MAX_WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lm = lm
        self.plan = plan
        self.slots = slots
        self.clock = clock
        self.running: list[Session] = []
        self.waiting: deque[Session] = deque()
        self._chunks = SessionChunks(token2wavs, clock)
        self._admission = Admission(slots, max_waiting, max_wait)
        self._opened = 0
        self._tokens = 0
        self._lm_seconds = 0.0

    def warm_up(self) -> None:
        """Captures and allocates what sessions need, before the first of them."""
        warm_up({**self._chunks.token2wavs, "speech LM": self.lm}, self.slots)

    def open(self, request: SpeechRequest, sink: AudioSink) -> Session:
        """A new session, planned here and now, or when more of it is needed; its chunks, or one
        error, go to the sink."""
        session = self.enter(request, sink)
        try:
            planned = UtterancePlan(request, self.plan(request, read_numbers, session.device))
        except Exception as error:  # the session must not wait for ever
            self.cancel(session)
            raise client_error(error) from error

        def more() -> None:
            try:
                session.follow(planned.next())
            except Exception as error:
                self.fail(session, client_error(error))

        self.begin(session, planned.first, None if planned.whole else more)
        return session

    def enter(self, request: SpeechRequest, sink: AudioSink) -> Session:
        """A new session with a place in the queue; it can't run before `begin`."""
        now = self.clock()
        holding = len(self.running) - len(preemptable(self.running, now))
        queued = (session.passed.queued for session in runnable(self.waiting))
        self._admission.check(holding + in_line(self.waiting), now, min(queued, default=None))
        device = self._chunks.least_loaded([*self.running, *self.waiting])
        session = Session(request, sink, device)
        session.passed.entered = now
        self.waiting.append(session)
        self._opened += 1
        return session

    def begin(
        self,
        session: Session,
        utterances: list[Utterance],
        more: Callable[[], None] | None = None,
    ) -> None:
        """The session may run: these are planned. `more` is called when another one is needed; the
        answer is the session's `follow`."""
        if not session.done:
            session.utterances, session.more = utterances, more
            session.passed.planned = session.passed.queued = now = self.clock()
            session.look_for_text(now)
            session.text_tokens = sum(utterance.text_tokens for utterance in utterances)

    def cancel(self, session: Session) -> None:
        """Frees all that the session holds; nothing more goes to its sink."""
        if session in self.waiting:
            self.waiting.remove(session)
        if session in self.running:
            self.running.remove(session)
            for utterance in session.utterances:
                self._leave(utterance.generation)
        session.utterances = []  # a session that is still referred to holds no tensors
        session.more = None
        session.done = True

    def step(self) -> bool:
        """One turn for everybody. False: nothing to do until something arrives."""
        self._admit()
        drew = not self._lm_rests() and self._advance_lm()
        spoke = self._advance_chunks()
        if drew or spoke:
            return True
        stalled = any(session.stalled_since is not None for session in self.running)
        preempts = stalled and runnable(self.waiting)  # before long, though nothing may arrive
        if not (self._chunks or preempts or any(session.ready for session in self.running)):
            return False
        alone = self._chunks and len(self.running) == 1 and self.running[0].urgent
        time.sleep(0.0 if alone else POLL_SECONDS)  # one that sleeps is late for a first sound
        return True

    def stats(self) -> EngineStats:
        return EngineStats(
            ready=True,
            waiting=len(self.waiting),
            running=len(self.running),
            slots=self.slots,
            sessions=self._opened,
            tokens=self._tokens,
            lm_seconds=self._lm_seconds,
            token2wav_seconds=self._chunks.seconds,
        )

    @property
    def chunks_begun(self) -> float | None:
        """When the oldest chunk that is being computed was begun."""
        return self._chunks.begun

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting or self._chunks)

    def check_idle(self) -> None:
        """At rest nothing may be held."""
        assert self.idle, "sessions are open"
        assert not self.lm.rows, "rows of the LM are taken, but no session is open"

    def _admit(self) -> None:
        now = self.clock()
        requeue(self.waiting, now)
        queued = runnable(self.waiting)
        lacking = max(0, len(self.running) + len(queued) - self.slots)
        for session in preemptable(self.running, now)[:lacking]:
            self.running.remove(session)
            self.waiting.append(session)
            self._leave(session.utterances[0].generation)
        for session in queued[: self.slots - len(self.running)]:
            self.waiting.remove(session)
            self.running.append(session)
            session.passed.admitted = session.passed.admitted or now
        joined = set(self.lm.rows)
        for session in self.running:
            # The LM may run ahead of the voice: one utterance of a session at a time.
            following = (u for u in session.utterances if u.generation.finish is None)
            utterance = next(following, None)
            if utterance and utterance.generation not in joined and self.lm.free:
                self.lm.join(utterance.generation)
        for session in [session for session in self.running if session.runs_out]:
            session.ask()

    def _lm_rests(self) -> bool:
        """Whether chunks are computed and nobody waits for tokens: drawing them would only slow a
        GPU down."""
        if not self._chunks:
            return False
        now = self.clock()
        return not any(self._waits_for_tokens(session, now) for session in self.running)

    def _waits_for_tokens(self, session: Session, now: float) -> bool:
        if session.take.ready:
            return session.urgent and not self._chunks.is_due(session, now)
        return not session.stream or session.slack(now) <= NEEDED_SECONDS + session.reserve

    def _advance_lm(self) -> bool:
        started = self.clock()
        before = sum(len(row.tokens) for row in self.lm.rows)
        try:
            worked = self.lm.step()
        except Exception as error:
            reason = client_error(error)
            for row in list(self.lm.rows):
                self._fail_row(row, reason)
            if is_fatal(error):
                raise
            return True
        self._tokens += sum(len(row.tokens) for row in self.lm.rows) - before
        for row in [row for row in self.lm.rows if row.finish is not None]:
            self._leave(row)
            for session in self._sessions_of(row):
                session.drawn(row, self.clock())
            if row.error:
                self._fail_row(row, row.error)
        self._lm_seconds += self.clock() - started
        return worked

    def _advance_chunks(self) -> bool:
        streaming = any(session.stream for session in self.running)
        chosen = self._chunks.choose(self._ready(), streaming=streaming)
        usable = [session for session in chosen if self._usable(session)]
        if usable:
            self._chunks.start(usable)
        finished = self._chunks.finished()
        for session, samples in finished:
            if isinstance(samples, Exception):
                self.fail(session, client_error(samples))
            else:
                self._deliver(session, samples)
        for _, samples in finished:
            if isinstance(samples, Exception) and is_fatal(samples):
                raise samples
        return bool(chosen or finished)

    def _ready(self) -> list[Session]:
        now = self.clock()
        ready = [session for session in self.running if session.ready]
        for session in ready:
            if session.ready_since is None:
                session.ready_since = now
                if not session.playback.chunks:
                    session.passed.first_tokens = now
        return ready

    def _usable(self, session: Session) -> bool:
        """Whether the LM's work can be spoken; if not, it is tried again or given up."""
        try:
            session.take.check(first=not session.utterances[0].attempt)
        except UnusableTakeError as error:
            self._retry(session, error)
            return False
        return True

    def _deliver(self, session: Session, samples: Floats) -> None:
        final = session.final
        try:
            samples, tokens = session.take.advance(samples)
        except UnusableTakeError as error:
            self._retry(session, error)
            return
        session.send(samples, tokens, self.clock(), final=final)
        if final:
            session.utterances.pop(0)
        if not session.utterances:
            self.running.remove(session)
            self._admission.ended(self.clock(), in_line(self.waiting))

    def _retry(self, session: Session, error: UnusableTakeError) -> None:
        """One more attempt with another seed, if nothing of the utterance was sent yet."""
        utterance = session.utterances[0]
        arrives = isinstance(utterance.generation.text, Bistream)
        if arrives or utterance.attempt or utterance.take.heard:
            self.fail(session, error)
            return
        session.ready_since = None
        session.retry(utterance)

    def fail(self, session: Session, error: CosyError) -> None:
        """Ends the session with an error, unless it has ended."""
        if not session.done:
            self.cancel(session)
            session.fail(error)

    def _fail_row(self, row: Generation, error: CosyError) -> None:
        for session in self._sessions_of(row):
            self.fail(session, error)

    def _sessions_of(self, row: Generation) -> list[Session]:
        """The session that a row of the LM belongs to, if it is still there."""
        return [
            session
            for session in self.running
            if any(utterance.generation is row for utterance in session.utterances)
        ]

    def _leave(self, generation: Generation) -> None:
        if generation in self.lm.rows:
            self.lm.leave(generation)
