"""What a client may hear of an error. Knows no session."""

from __future__ import annotations

import logging

from torch import OutOfMemoryError

from cosyserve.errors import CosyError, WorkerError

log = logging.getLogger(__name__)


def client_error(error: Exception) -> CosyError:
    """What it may not hear goes to the log."""
    if isinstance(error, CosyError):
        return error
    log.error("unexpected error", exc_info=error)
    if isinstance(error, OutOfMemoryError):
        return WorkerError("the GPU's memory is taken by others: try again later")
    if is_fatal(error):
        return WorkerError("the GPU has failed, and is started again")
    return CosyError("internal error, see the log")


def is_fatal(error: Exception) -> bool:
    """After some errors a GPU fails whatever it is asked: only a new process helps."""
    return "CUDA error" in str(error) and not isinstance(error, OutOfMemoryError)
