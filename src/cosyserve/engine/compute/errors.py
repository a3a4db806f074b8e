"""Errors as clients may see them: out of memory, a failed GPU, a bug."""

from __future__ import annotations

import logging

from torch import OutOfMemoryError

from cosyserve.errors import CosyError, WorkerError

log = logging.getLogger(__name__)


def client_error(error: Exception) -> CosyError:
    """The error that is sent to the client; what it may not see goes to the log."""
    if isinstance(error, CosyError):
        return error
    log.error("unexpected error", exc_info=error)
    if isinstance(error, OutOfMemoryError):
        return WorkerError("the GPU's memory is taken by others: try again later")
    if is_fatal(error):
        return WorkerError("the GPU has failed, and is started again")
    return CosyError("internal error, see the log")


def is_fatal(error: Exception) -> bool:
    """Whether the GPU fails from now on, whatever it is asked: only a new process helps."""
    return "CUDA error" in str(error) and not isinstance(error, OutOfMemoryError)
