"""The loop that drives a scheduler: commands in between steps, sleep when there is nothing to do.

Knows no process: a thread of ours runs it, or a worker's main thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar


class Turns(Protocol):
    """What a loop drives: a scheduler, or a part of one that runs alone."""

    def step(self) -> bool:
        """One turn for everybody. False: nothing to do until something arrives."""
        ...

    @property
    def idle(self) -> bool: ...

    def check_idle(self) -> None:
        """At rest nothing may be held."""
        ...


Driven = TypeVar("Driven", bound=Turns)

log = logging.getLogger(__name__)


class Loop(Generic[Driven]):
    def __init__(self, scheduler: Driven, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called after every step and every command."""
        self.scheduler, self._after = scheduler, after
        self._commands: SimpleQueue[Callable[[Driven], None] | None] = SimpleQueue()

    def submit(self, command: Callable[[Driven], None]) -> None:
        """From any thread."""
        self._commands.put(command)

    def stop(self) -> None:
        self._commands.put(None)

    def run(self) -> None:
        """Until `stop`."""
        busy = False
        while True:
            try:
                command = self._commands.get(block=not busy)
            except Empty:
                pass
            else:
                if command is None:
                    return
                try:
                    command(self.scheduler)
                except Exception:
                    log.exception("a command failed")
                del command  # it may hold a session, and the next one may be long in coming
                busy = True  # see whether it gave us something to do
                self._after()
                continue
            busy = self.scheduler.step()
            if self.scheduler.idle:
                self.scheduler.check_idle()
            self._after()
