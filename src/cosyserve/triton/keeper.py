"""Keeps a tritonserver serving: when one of its Python processes dies, it is started anew.

Triton neither restarts such a process nor answers the requests that it had. Here they end at once,
with their connections, and a fresh server listens on the same ports.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cosyserve.errors import CosyError, InputError
from cosyserve.triton.process import READY_SECONDS, Ports, TritonProcess

LOOK_SECONDS = 0.25
PAUSES = (0.0, 1.0, 5.0, 15.0)  # seconds before a start, by starts in a row that came to nothing
SETTLED_SECONDS = 30.0  # of life: before, somebody else on its ports may have said that it is ready
STARTS = 3  # in a row that may come to nothing before whoever waits for the first is told
PORT_OPTIONS = ("--http-port", "--grpc-port", "--metrics-port")

log = logging.getLogger(__name__)


class TritonKeeper:
    """A tritonserver and the thread that watches it."""

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
        if not repository.is_dir():
            raise InputError(f"{repository}: no such folder")
        if twice := [option for option in options if option.startswith(PORT_OPTIONS)]:
            raise InputError(f"{twice[0]}: ports are given before the --, not behind it")
        ports.check_free()
        self._start = partial(TritonProcess, repository, ports, options, host=host, loud=loud)
        self._over = threading.Event()
        self.restarts = self._failures = 0
        self._last_words = ""  # of the server before this one
        self.server = self._start()
        self._keeper = threading.Thread(target=self._keep, name="triton keeper", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        self._over.set()
        self._keeper.join()
        self.server.stop()

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """A server that aborts at its start is given another try, and a third."""
        until = time.monotonic() + seconds
        while not self.server.ready:
            if self._failures >= STARTS:
                raise CosyError(f"tritonserver ended at its start:\n{self._last_words}")
            if time.monotonic() > until:
                raise CosyError(f"tritonserver is not ready after {seconds:.0f} s")
            time.sleep(0.1)

    def _keep(self) -> None:
        while self._watch():
            settled = time.monotonic() - self.server.started > SETTLED_SECONDS
            self._failures = 0 if self.server.was_ready and settled else self._failures + 1
            log.warning("tritonserver lost a process and is started anew")
            self._last_words = self.server.tail() or self._last_words
            self.server.kill()
            if self._over.wait(PAUSES[min(self._failures, len(PAUSES) - 1)]):
                return
            self.restarts += 1
            try:
                self.server = self._start()
            except OSError as error:  # a full disk, say: next time it may be better
                log.error("tritonserver can't be started: %s", error)

    def _watch(self) -> bool:
        """Waits -> True when the server has to be replaced, False when it is to stop."""
        known: set[str] = set()
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
        return False


def keep(repository: Path, ports: Ports, options: Sequence[str] = ()) -> None:
    """Keeps a tritonserver on a repository until SIGTERM or SIGINT."""
    logging.basicConfig(format="%(message)s")
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    keeper = TritonKeeper(repository, ports, options, loud=True)
    over.wait()
    keeper.stop()


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
