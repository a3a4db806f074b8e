"""Warm-up before the first session: nothing is captured, compiled or allocated under load."""

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


class OutOfGPUMemoryError(CosyError):
    """The sessions that were to run at once don't fit on the GPU."""


class Part(Protocol):
    def warm_up(self) -> int:
        """-> how many shapes became ready."""
        ...

    def reserve(self) -> None:
        """Memory for sessions to come."""
        ...


def warm_up(parts: Mapping[str, Part], slots: int) -> None:
    gc.collect()
    gc.freeze()  # a capture looks for garbage first, and all that is there now will stay
    try:
        for name, part in parts.items():
            started = time.monotonic()
            with oom_as_error(slots):
                shapes = part.warm_up()
            if shapes:
                took = time.monotonic() - started
                log.info("warming up: %s has %d shapes ready, %.1f s", name, shapes, took)
        with oom_as_error(slots):
            for part in parts.values():
                part.reserve()
    finally:
        gc.unfreeze()


@contextmanager
def oom_as_error(slots: int) -> Iterator[None]:
    """Turns what does not fit on the GPU into an error that names what to change."""
    try:
        yield
    except OutOfMemoryError as error:
        raise OutOfGPUMemoryError(
            f"the GPU has no memory for {slots} sessions: set COSYSERVE_SLOTS to fewer, or "
            "COSYSERVE_GPU_MEMORY to more"
        ) from error
