"""Before the first session: all that will be captured, compiled or allocated is so now.

Knows no part that it warms up.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from torch import OutOfMemoryError

from cosyserve.errors import CosyError

log = logging.getLogger(__name__)


class Part(Protocol):
    def warm_up(self) -> int:
        """-> how many shapes are ready."""
        ...

    def reserve(self) -> None:
        """Memory for sessions to come."""
        ...


def warm_up(parts: Mapping[str, Part], slots: int) -> None:
    gc.collect()
    gc.freeze()  # a capture looks for garbage first, and all that is there now will stay
    try:
        for name, part in parts.items():
            begun = time.monotonic()
            with room_for(slots):
                shapes = part.warm_up()
            if shapes:
                took = time.monotonic() - begun
                log.info("warming up: %s has %d shapes ready, %.1f s", name, shapes, took)
        with room_for(slots):
            for part in parts.values():
                part.reserve()
    finally:
        gc.unfreeze()


@contextmanager
def room_for(slots: int) -> Iterator[None]:
    """What does not fit on the GPU is an error that names what to change."""
    try:
        yield
    except OutOfMemoryError as error:
        raise CosyError(
            f"the GPU has no memory for {slots} sessions: set COSYSERVE_SLOTS to fewer"
        ) from error
