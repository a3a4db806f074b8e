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
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cosyserve.errors import CosyError, InputError
from cosyserve.triton.process import Ports, TritonProcess

LOOK_SECONDS = 0.25
PAUSES = (0.0, 1.0, 5.0, 15.0)  # seconds before a start, by starts in a row that came to nothing
PORT_OPTIONS = ("--http-port", "--grpc-port", "--metrics-port")
STUB = b"triton_python_backend_stub"

log = logging.getLogger(__name__)


class TritonKeeper:
    """A tritonserver and the thread that watches it."""

    def __init__(
        self, repository: Path, ports: Ports, options: Sequence[str] = (), *, loud: bool = False
    ) -> None:
        """`options` are tritonserver's own; `loud`: its log goes where ours does."""
        if not repository.is_dir():
            raise InputError(f"{repository}: no such folder")
        if twice := [option for option in options if option.startswith(PORT_OPTIONS)]:
            raise InputError(f"{twice[0]}: ports are given before the --, not behind it")
        ports.check_free()
        self._start = partial(TritonProcess, repository, ports, options, loud=loud)
        self._over = threading.Event()
        self.restarts = 0
        self.server = self._start()
        self._keeper = threading.Thread(target=self._keep, name="triton keeper", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        self._over.set()
        self._keeper.join()
        self.server.stop()

    def _keep(self) -> None:
        failures = 0
        while self._watch():
            failures = 0 if self.server.was_ready else failures + 1
            log.warning("tritonserver lost a process and is started anew")
            self.server.kill()
            if self._over.wait(PAUSES[min(failures, len(PAUSES) - 1)]):
                return
            self.restarts += 1
            self.server = self._start()

    def _watch(self) -> bool:
        """Waits -> True when the server has to be replaced, False when it is to stop."""
        stubs: set[int] = set()
        while not self._over.wait(LOOK_SECONDS):
            alive = self.server.children(STUB)
            if self.server.process.poll() is not None or stubs - alive:
                return True
            if self.server.ready_once():
                stubs |= alive
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
