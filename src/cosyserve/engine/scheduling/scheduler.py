"""Advances all sessions together: the LM one token, then the chunks that are due.

Knows no process and no protocol; chunks and errors go to each session's sink. On a GPU the LM goes
on while chunks are computed; nothing here waits for them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import EngineStats, Floats, SpeechRequest
from cosyserve.engine.compute.errors import client_error, is_fatal
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.profile import CPU_SLOTS, LATENCY, Profile
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.compute.warm_up import room_for, warm_up
from cosyserve.engine.scheduling.admission import Admission
from cosyserve.engine.scheduling.chunks import Chunks, Token2WavLike
from cosyserve.engine.scheduling.lm_requests import check_text
from cosyserve.engine.scheduling.plan import check_arrived, plan
from cosyserve.engine.scheduling.session import Session, Sink, Utterance
from cosyserve.errors import CosyError
from cosyserve.models.lm.bistream import Bistream
from cosyserve.text.numbers import Reader, read_numbers

WAITING = 64  # sessions that may wait
MAX_WAIT = 1.0  # seconds that one may have to wait
POSITIONS = 4096  # of the LM, for prompt, text and speech of an utterance
SILENCE = 1e-4  # an utterance that never gets louder is no speech
POLL = 2e-4  # seconds between two looks at a GPU when there is nothing else to do


class Rows(Protocol):
    """What the scheduler asks of an LM: `LMRunner`, or a stand-in."""

    rows: list[Generation]

    @property
    def free(self) -> int: ...

    def join(self, row: Generation) -> None: ...

    def leave(self, row: Generation) -> None: ...

    def step(self) -> bool: ...

    def warm_up(self) -> int: ...

    def reserve(self) -> None: ...


class Scheduler:
    def __init__(
        self,
        lm: Rows,
        token2wav: Token2WavLike,
        plan: Callable[[SpeechRequest, Reader], list[Utterance]],
        *,
        slots: int = CPU_SLOTS,
        waiting: int = WAITING,
        max_wait: float = MAX_WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lm, self.plan = lm, plan
        self.slots, self.limit, self.clock = slots, waiting, clock
        self.max_wait = max_wait
        self.running: list[Session] = []
        self.waiting: deque[Session] = deque()
        self._chunks = Chunks(token2wav, clock)
        self._pace = Admission()
        self._opened = self._tokens = 0
        self._lm_seconds = 0.0

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        slots: int = 0,
        waiting: int = WAITING,
        max_wait: float = MAX_WAIT,
        profile: Profile = LATENCY,
    ) -> Scheduler:
        """The scheduler of a model; 0 slots are as many as the profile has."""
        lm, _ = model.need_lm()
        slots = slots or profile.slots_on(model.device)
        rows = [count for count in profile.rows if count < 2 * slots]
        with room_for(slots):
            runner = LMRunner(lm, slots, POSITIONS)
            token2wav = Token2Wav(*model.need_token2wav(), rows, profile.hop)
        return cls(
            runner,
            token2wav,
            lambda request, read: plan(model, token2wav, request, POSITIONS, read),
            slots=slots,
            waiting=waiting,
            max_wait=max_wait,
        )

    def warm_up(self) -> None:
        """Before the first session."""
        warm_up({"speech LM": self.lm, "token2wav": self._chunks.token2wav}, self.slots)

    def open(self, request: SpeechRequest, sink: Sink) -> Session:
        """A new session, planned here and now; its chunks, or one error, go to the sink."""
        session = self.enter(request, sink)
        try:
            self.begin(session, self.plan(request, read_numbers))
        except Exception as error:  # whoever asked must hear of it, not wait for ever
            self.cancel(session)
            raise client_error(error) from error
        return session

    def enter(self, request: SpeechRequest, sink: Sink) -> Session:
        """A new session with a place in the queue; it can't run before `begin`."""
        here = len(self.waiting) + len(self.running)
        ahead = max(0, here - self.slots)  # whoever has a slot waits for nothing but its plan
        full = here >= self.limit + self.slots
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
        spoke = not self._lm_rests() and self._advance_lm()
        voiced = self._advance_chunks()
        if self._chunks and not (spoke or voiced):
            time.sleep(POLL)
        return spoke or voiced or bool(self._chunks)

    def stats(self) -> EngineStats:
        return EngineStats(
            ready=True,
            waiting=len(self.waiting),
            running=len(self.running),
            sessions=self._opened,
            tokens=self._tokens,
            lm_seconds=self._lm_seconds,
            token2wav_seconds=self._chunks.seconds,
        )

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting or self._chunks)

    def check_idle(self) -> None:
        """At rest nothing may be held."""
        assert self.idle, "sessions are open"
        assert not self.lm.rows, "rows of the LM are taken, but no session is open"

    def _admit(self) -> None:
        planned = [session for session in self.waiting if session.utterances]
        for session in planned[: self.slots - len(self.running)]:
            self.waiting.remove(session)
            self.running.append(session)
        joined = set(self.lm.rows)
        for session in self.running:
            # The LM may run ahead of the voice: one utterance of a session at a time.
            following = (u for u in session.utterances if u.generation.finish is None)
            utterance = next(following, None)
            if utterance and utterance.generation not in joined and self.lm.free:
                self.lm.join(utterance.generation)

    def _lm_rests(self) -> bool:
        """While a GPU computes somebody's first chunk, tokens that nobody waits for would only slow
        it down."""
        if not self._chunks.first:
            return False
        now = self.clock()
        return all(s.utterances[0].ready or s.sated(now) for s in self.running)

    def _advance_lm(self) -> bool:
        begun = self.clock()
        before = sum(len(row.tokens) for row in self.lm.rows)
        try:
            worked = self.lm.step()
        except Exception as error:
            reason = client_error(error)
            for session in list(self.running):
                if any(u.generation in self.lm.rows for u in session.utterances):
                    self.fail(session, reason)
            if is_fatal(error):
                raise
            return True
        self._tokens += sum(len(row.tokens) for row in self.lm.rows) - before
        for row in [row for row in self.lm.rows if row.finish is not None]:
            self._leave(row)
        self._lm_seconds += self.clock() - begun
        return worked

    def _advance_chunks(self) -> bool:
        due = self._chunks.due(self.running)
        possible = [session for session in due if not self._hopeless(session)]
        if possible:
            self._chunks.start(possible)
        finished = self._chunks.finished()
        for session, found in finished:
            if isinstance(found, Exception):
                self.fail(session, client_error(found))
            else:
                self._deliver(session, found)
        for _, found in finished:
            if isinstance(found, Exception) and is_fatal(found):
                raise found
        return bool(due or finished)

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
        session.due_since = None
        utterance.begin_again(session.attempts)

    def fail(self, session: Session, error: CosyError) -> None:
        """Ends the session with an error, unless it has ended."""
        if not session.done:
            self.cancel(session)
            session.fail(error)

    def _leave(self, generation: Generation) -> None:
        if generation in self.lm.rows:
            self.lm.leave(generation)
