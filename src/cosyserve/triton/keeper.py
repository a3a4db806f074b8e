"""Keeps a tritonserver serving: when one of its Python processes dies, it is started anew.

Triton neither restarts such a process nor answers the requests that it had. Here they end at once,
with their connections, and a fresh server listens on the same ports.
"""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cosyserve.errors import CosyError, InputError
from cosyserve.settings import Settings
from cosyserve.signals import ENDING, own_handlers
from cosyserve.triton.process import READY_SECONDS, Ports, TritonProcess, model_folders

LOOK_SECONDS = 0.25
# Seconds before a start, by starts in a row that came to nothing.
PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
SETTLED_SECONDS = 30.0  # of life: before, somebody else on its ports may have said that it is ready
# In a row, before a server that never was ready is given up: starts that ended with an error, which
# the next will have, too; all starts, also by a signal, which a busy machine explains.
ERRORS, STARTS = 3, 6
# A server that knows of a process's death ends within seconds, with a message. If the process died
# too early for that, the server waits for it for ever.
HUNG_SECONDS = 15.0
PORT_OPTIONS = ("--http-port", "--grpc-port", "--metrics-port")

log = logging.getLogger(__name__)


class TritonKeeper:
    """A tritonserver and the thread that watches it. One that was ready is always started anew; one
    that never was is given up after some tries."""

    def __init__(
        self,
        repository: Path,
        ports: Ports,
        options: Sequence[str] = (),
        *,
        host: str = "",
        loud: bool = False,
    ) -> None:
        """`options` are tritonserver's own; `host` and `loud` as of `TritonProcess`."""
        folders = model_folders(repository)
        if twice := [option for option in options if option.startswith(PORT_OPTIONS)]:
            raise InputError(f"{twice[0]}: ports are given before the --, not behind it")
        ports.check_free()
        if not folders:
            raise InputError(f"{repository}: holds no model: `cosyserve deploy triton` writes some")
        self._start = partial(TritonProcess, repository, ports, options, host=host, loud=loud)
        self._over = threading.Event()
        self.restarts = self._failures = self._errors = 0
        self._was_ready = False  # any of the servers
        self._given_up = False
        self._last_words = ""  # of the server before this one
        self.server = self._start()
        self._keeper = threading.Thread(target=self._keep, name="triton keeper", daemon=True)
        self._keeper.start()

    def stop(self, seconds: float = 0.0) -> None:
        """Speech that is being made has so many seconds to end."""
        self._over.set()
        self._keeper.join()
        self.server.drain(seconds)
        self.server.stop()

    def check(self) -> None:
        """An error once the server is given up."""
        if self._given_up:
            why = self._last_words or "its log above says why"
            raise CosyError(f"tritonserver ended at its start, {self._failures} times:\n{why}")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """A server that ends at its start is given some more tries."""
        until = time.monotonic() + seconds
        while not self.server.ready:
            self.check()
            if time.monotonic() > until:
                words = self.server.tail() or self._last_words
                raise CosyError(f"tritonserver is not ready after {seconds:.0f} s:\n{words}")
            time.sleep(0.1)

    def _keep(self) -> None:
        while self._watch():
            self._last_words = self.server.tail() or self._last_words
            self._count()
            self.server.kill()
            if not self._was_ready and (self._errors >= ERRORS or self._failures >= STARTS):
                self._given_up = True
                return
            log.warning("tritonserver lost a process and is started anew")
            if self._over.wait(PAUSES[min(self._failures, len(PAUSES) - 1)]):
                return
            self.restarts += 1
            try:
                self.server = self._start()
            except OSError as error:  # a full disk, say: next time it may be better
                log.error("tritonserver can't be started: %s", error)

    def _count(self) -> None:
        """Notes how the server that has to be replaced has done."""
        server = self.server
        self._was_ready = self._was_ready or server.was_ready
        settled = time.monotonic() - server.started > SETTLED_SECONDS
        if server.was_ready and settled:
            self._failures = self._errors = 0
            return
        self._failures += 1
        if (server.process.poll() or 0) >= 0:
            self._errors += 1

    def _watch(self) -> bool:
        """Waits -> True when the server has to be replaced, False when it is to stop."""
        known: set[str] = set()
        deadline = math.inf  # for the server to notice a death
        while not self._over.wait(LOOK_SECONDS):
            alive = self.server.stubs().keys()
            if self.server.process.poll() is not None:
                return True
            lost = known - alive
            if any(self.server.serves(stub.partition("/")[0]) for stub in lost):
                return True
            known -= lost  # of models that were unloaded
            if self.server.ready_once():
                known |= alive
            now, dead = time.monotonic(), self.server.has_dead_stub()
            if dead and now > deadline:
                return True
            deadline = min(deadline, now + HUNG_SECONDS) if dead else math.inf
        return False


def keep(repository: Path, ports: Ports, options: Sequence[str] = ()) -> None:
    """Keeps a tritonserver on a repository until SIGTERM or SIGINT, or until it is given up.

    Running speech is finished then, unless a second signal ends it.
    """
    logging.basicConfig(format="%(message)s")
    seconds = Settings.read().shutdown_seconds
    over = threading.Event()
    with own_handlers():
        for number in ENDING:
            signal.signal(number, lambda *_: over.set())
        keeper = TritonKeeper(repository, ports, options, loud=True)
        try:
            while not over.wait(LOOK_SECONDS):
                keeper.check()
            for number in ENDING:
                signal.signal(number, lambda *_: keeper.server.kill_processes())
        finally:
            keeper.stop(seconds)


def main() -> None:
    """python -m cosyserve.triton.keeper REPOSITORY [--http-port N]… [-- TRITONSERVER'S OPTIONS]"""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(prog="cosyserve.triton.keeper", description=__doc__)
    parser.add_argument("repository", type=Path)
    for name, port in vars(Ports()).items():
        parser.add_argument(f"--{name}-port", dest=name, type=int, default=port)
    given = vars(parser.parse_args(sys.argv[1:split]))
    repository = given.pop("repository")
    try:
        keep(repository, Ports(**given), sys.argv[split + 1 :])
    except CosyError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
