"""Who may wait, and who gives way: a request is refused at once where the queue is full or moves
too slowly; a session whose text does not go on leaves its slot to whoever waits for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from cosyserve.engine.scheduling.session import Session
from cosyserve.errors import OverloadError

# That the LM waits for text before its row may be somebody else's: what it is fed at a time is
# about as long when it is spoken, so that a text which comes as fast as speech never gives way.
STALL_SECONDS = 1.0
WINDOW = 16  # ends of sessions that the pace is taken from
MIN_ENDS = 4


class Admission:
    def __init__(self, slots: int, max_waiting: int, max_wait: float) -> None:
        """`max_wait`: seconds that a request may have to wait for one of the slots."""
        self.slots = slots
        self.max_waiting = max_waiting
        self.max_wait = max_wait
        self._ends: deque[float] = deque(maxlen=WINDOW)
        self._seconds_per_end = 0.0  # unknown

    def check(self, inside: int, now: float, waiting_since: float | None = None) -> None:
        """Refuses a request that would find so many others inside, running and waiting, the first
        of these since then. While nobody ends, that one's wait says how slowly the queue moves."""
        ahead = max(0, inside - self.slots)
        wait = ahead * self._seconds_per_end
        if waiting_since is not None:
            wait = max(wait, now - max([waiting_since, *self._ends]))
        if inside >= self.slots + self.max_waiting or wait > self.max_wait:
            raise OverloadError(f"{ahead} requests are waiting already", max(1.0, wait))

    def ended(self, now: float, waiting: int) -> None:
        """A session has come to its end, while so many waited. When nobody waits, the time to the
        next end says when requests come, not how long they take."""
        if not waiting:
            self._ends.clear()
            return
        self._ends.append(now)
        if len(self._ends) >= MIN_ENDS:
            self._seconds_per_end = (now - self._ends[0]) / (len(self._ends) - 1)


def in_line(waiting: Iterable[Session]) -> int:
    """How many wait for a slot, or are planned before they do."""
    return sum(session.stalled_since is None for session in waiting)


def runnable(waiting: Iterable[Session]) -> list[Session]:
    """Those that wait for a slot, and for nothing else."""
    return [s for s in waiting if s.utterances and s.stalled_since is None]


def requeue(waiting: deque[Session], now: float) -> None:
    """Those whose text goes on are in line again; who had a slot, behind those that are in it."""
    for session in [s for s in waiting if s.stalled_since is not None and not s.stalled]:
        session.stalled_since, session.passed.queued = None, now
        if session.passed.admitted:
            waiting.remove(session)
            waiting.append(session)


def preemptable(running: Sequence[Session], now: float) -> list[Session]:
    """Those that give way where somebody waits for a slot, in this order."""
    for session in running:
        session.look_for_text(now)
    stalls = [(s.stalled_since, s.number, s) for s in running if s.stalled_since is not None]
    return [session for since, _, session in sorted(stalls) if now - since >= STALL_SECONDS]
