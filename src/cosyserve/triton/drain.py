"""How a server ends without cutting speech: no more is begun, and what is being made is finished.

Triton lets no model ask another once it is told to end, so it may be told only when nobody speaks.
A speech model locks a file while it answers a client. Who ends the server removes that file, and
waits for the lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cosyserve.errors import WorkerError

FILE = "COSYSERVE_TRITON_SPEAKING"  # tells a server's models which file they lock


class Drain:
    """The file of one server, seen by whoever ends the server."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream = file.open("wb")

    def begin(self) -> None:
        """From now on no request is taken."""
        self._file.unlink(missing_ok=True)

    @property
    def done(self) -> bool:
        """Whether nobody speaks any more."""
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._stream.close()


@contextmanager
def speaking() -> Iterator[None]:
    """Around the answer to a client; an error in a server that drains."""
    name = os.environ.get(FILE)
    if name is None:  # a tritonserver that was started without us
        yield
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(name).open("rb"))
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError):
            raise WorkerError("this server is about to end: ask another") from None
        yield
