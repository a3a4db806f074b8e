"""The signals that ask a process to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def own_handlers() -> Iterator[None]:
    """A block with handlers of its own: behind it those before are back."""
    before = [signal.getsignal(number) for number in ENDING]
    try:
        yield
    finally:
        for number, handler in zip(ENDING, before, strict=True):
            signal.signal(number, handler)
