"""The loop that drives a scheduler: commands between steps, sleep when there is nothing to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from cosyserve.malloc import return_freed_memory

REST_SECONDS = 5.0  # without a command, until freed memory goes back to the system


class Steppable(Protocol):
    """What a loop drives: a scheduler, or the queue of a service."""

    def step(self) -> bool:
        """One turn for everybody. False: nothing to do until something arrives."""
        ...

    @property
    def idle(self) -> bool: ...

    def check_idle(self) -> None:
        """Asserts that nothing is held at rest."""
        ...


S = TypeVar("S", bound=Steppable)

log = logging.getLogger(__name__)


class Loop(Generic[S]):
    def __init__(self, scheduler: S, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called after every step and every command."""
        self.scheduler, self._after = scheduler, after
        self._commands: SimpleQueue[Callable[[S], None] | None] = SimpleQueue()
        # Of the step or the command under way, by time.monotonic; None: there is none.
        self.turn_began: float | None = None

    def submit(self, command: Callable[[S], None]) -> None:
        """From any thread."""
        self._commands.put(command)

    def wake(self) -> None:
        """Another step, though there was nothing to do. From any thread."""
        self.submit(lambda scheduler: None)

    def stop(self) -> None:
        self._commands.put(None)

    def run(self) -> None:
        """Until `stop`."""
        busy = False
        while True:
            try:
                command = self._commands.get_nowait() if busy else self._awaited()
            except Empty:
                pass
            else:
                if command is None:
                    return
                self.turn_began = time.monotonic()
                try:
                    command(self.scheduler)
                except Exception:
                    log.exception("a command failed")
                del command  # it may hold a session, and the next one may be long in coming
                self.turn_began = None
                busy = True  # see whether it gave us something to do
                self._after()
                continue
            self.turn_began = time.monotonic()
            busy = self.scheduler.step()
            self.turn_began = None
            if self.scheduler.idle:
                self.scheduler.check_idle()
            self._after()

    def _awaited(self) -> Callable[[S], None] | None:
        """The next command, however late."""
        with suppress(Empty):
            return self._commands.get(timeout=REST_SECONDS)
        return_freed_memory()
        return self._commands.get()
