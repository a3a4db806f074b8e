"""How a request comes to the scheduler's thread: a place in the queue at once, then a plan.

Plans are made in threads beside the loop, so that a long text holds up no session: its first
utterance at once, each other one when it is needed. Where there is no other session, a short text
is planned by the loop itself: to wake a thread and be woken by it costs a third of a millisecond.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cosyserve.choices import MAX_WAITING
from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.scheduling.lm_requests import arriving_tokens
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.plan import AT_ONCE, UtterancePlan
from cosyserve.engine.scheduling.plan_turns import PlanTurns, Rank
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import AudioSink, Session
from cosyserve.errors import CosyError, OverloadError
from cosyserve.text import ArrivingTokens, TextTokenizer
from cosyserve.text.language import Language
from cosyserve.text.numbers import Reader

# Texts that are planned at once: as many as may wait, so that nobody stands behind those whose odd
# numbers wait for a grammar.
THREADS = MAX_WAITING
NO_THREAD_SECONDS = 1.0  # until a request may find one
# In seconds, after which a plan leaves Python's lock to a scheduler that wants to go on: with the
# usual ones it would lose half of its time.
SWITCH_SECONDS = 0.0005


class GrammarNeededError(Exception):
    """A number must be read by a process that the scheduler's thread does not wait for."""


class Intake:
    def __init__(
        self,
        loop: Loop[Scheduler],
        tokenizer: TextTokenizer,
        read: Reader,
        before_nets: Callable[[], None] = lambda: None,
    ) -> None:
        """`read` reads numbers aloud; it should leave Python's lock to others meanwhile.
        `before_nets` is called in a thread that is about to compute. Threads of the whole process
        pass that lock on sooner from now on."""
        self.loop, self.tokenizer, self.read = loop, tokenizer, read
        self.before_nets = before_nets
        self.threads = ThreadPoolExecutor(THREADS, "plan")
        self.turns = PlanTurns()
        sys.setswitchinterval(SWITCH_SECONDS)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


class Ticket:
    """One request on its way; its methods may be called from any thread.

    What needs thought is done in the order in which it was asked for, one thing at a time. The
    sink hears from the scheduler's thread.
    """

    def __init__(self, intake: Intake, request: SpeechRequest, sink: AudioSink) -> None:
        self._intake = intake
        self._request = request
        self._sink = sink
        self._session: Session | None = None
        self._arriving: ArrivingTokens | None = None  # until there is some
        self._tasks: deque[Callable[[Session], None]] = deque([self._plan])
        self._turn = threading.Lock()
        self._working = True  # nothing is begun before there is a place in the queue

    def open(self) -> None:
        self._intake.loop.submit(self._enter)

    def push(self, piece: str) -> None:
        """More text, where it arrives piece by piece; an empty piece: it has come to a halt."""
        self._do(lambda session: self._hand_over(session, self._ids.push(piece)))

    def end(self) -> None:
        """The text is over."""

        def flush(session: Session) -> None:
            self._hand_over(session, self._ids.flush())
            self._intake.loop.submit(lambda _: session.end())

        self._do(flush)

    def cancel(self) -> None:
        """Frees all that the session holds; nothing more goes to the sink."""
        self._intake.loop.submit(self._leave)

    def _enter(self, scheduler: Scheduler) -> None:
        try:
            session = self._session = scheduler.enter(self._request, self._sink)
        except OverloadError as error:
            self._sink(error)
        else:
            alone = len(scheduler.waiting) + len(scheduler.running) == 1
            if not (alone and self._is_short and self._planned_here(session)):
                self._start()

    def _leave(self, scheduler: Scheduler) -> None:
        if self._session:
            scheduler.cancel(self._session)

    @property
    def _is_short(self) -> bool:
        text = self._request.text
        return (
            self._request.mode is not Mode.CONVERT
            and isinstance(text, str)
            and len(text) <= AT_ONCE
        )

    def _planned_here(self, session: Session) -> bool:
        """Plans in the scheduler's thread. False: something is left to do in another."""
        try:
            self._plan(session, _read_nothing)
        except GrammarNeededError:
            return False
        except Exception as error:
            self._intake.loop.scheduler.fail(session, client_error(error))
        with self._turn:
            self._tasks.popleft()
            self._working = bool(self._tasks)
            return not self._working

    def _plan(self, session: Session, read: Reader | None = None) -> None:
        loop = self._intake.loop
        planned = UtterancePlan(
            self._request, loop.scheduler.plan(self._request, read or self._read, session.device)
        )

        def follow(session: Session) -> None:
            utterance = planned.next()
            loop.submit(lambda _: session.follow(utterance))

        more = None if planned.whole else lambda: self._do(follow)
        loop.submit(lambda scheduler: scheduler.begin(session, planned.first, more))

    @property
    def _ids(self) -> ArrivingTokens:
        """Made where its errors are the session's."""
        if self._arriving is None:
            tokenizer = self._intake.tokenizer
            self._arriving = arriving_tokens(self._request, tokenizer, self._read)
        return self._arriving

    @property
    def _rank(self) -> Rank:
        text, session = self._request.text, self._session
        begun = bool(session and session.utterances)
        return (begun, len(text)) if isinstance(text, str) else (False, 0)

    def _read(self, text: str, language: Language) -> str:
        if self._session and self._session.done:
            raise CosyError("nobody waits for this text any more")
        with self._intake.turns.pause(self._rank):
            return self._intake.read(text, language)

    def _hand_over(self, session: Session, ids: list[int]) -> None:
        def push(scheduler: Scheduler) -> None:
            try:
                session.push(ids)
            except Exception as error:
                scheduler.fail(session, client_error(error))

        self._intake.loop.submit(push)

    def _do(self, task: Callable[[Session], None]) -> None:
        with self._turn:
            self._tasks.append(task)
            if self._working:
                return
            self._working = True
        self._start()

    def _start(self) -> None:
        """Has a thread do what is to be done; one that has ended does nothing more."""
        try:
            self._intake.threads.submit(self._work)
        except RuntimeError:  # the system gives no more threads
            session = self._session
            assert session
            full = OverloadError("the server can't start another thread", NO_THREAD_SECONDS)
            self._intake.loop.submit(lambda scheduler: scheduler.fail(session, full))

    def _work(self) -> None:
        session = self._session
        assert session
        while True:
            with self._turn:
                if not self._tasks or session.done:
                    self._working = False
                    return
                task = self._tasks.popleft()
            try:
                if self._request.mode is Mode.CONVERT:  # a net listens, and needs no Python
                    self._intake.before_nets()
                    task(session)
                else:
                    with self._intake.turns.turn(self._rank):
                        task(session)
            except Exception as error:
                reason = client_error(error)
                self._intake.loop.submit(lambda scheduler: scheduler.fail(session, reason))  # noqa: B023


def _read_nothing(text: str, language: Language) -> str:
    raise GrammarNeededError
