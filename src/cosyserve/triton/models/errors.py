"""Errors of ours as Triton's, and back. Knows no model."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb

from cosyserve.engine.compute.errors import client_error
from cosyserve.errors import (
    AudioError,
    CosyError,
    InputError,
    MissingVoiceError,
    OverloadError,
    VoiceError,
    WorkerError,
)
from cosyserve.triton.errors import error_message, parse_error


def triton_error(error: Exception) -> pb.TritonError:
    """What a client may hear; what it may not goes to the log."""
    known = client_error(error)
    kinds, message = pb.TritonError, error_message(known)
    if isinstance(known, OverloadError | WorkerError):
        return kinds(message, kinds.UNAVAILABLE)
    if isinstance(known, MissingVoiceError):
        return kinds(message, kinds.NOT_FOUND)
    if isinstance(known, InputError | VoiceError | AudioError):
        return kinds(message, kinds.INVALID_ARG)
    return kinds(message, kinds.INTERNAL)


def check(response: Any) -> None:
    """Raises what another model complains of."""
    if response.has_error():
        raise our_error(response.error())


def our_error(error: pb.TritonError) -> CosyError:
    """What an inner model complained of."""
    codes = {
        pb.TritonError.UNAVAILABLE: "UNAVAILABLE",
        pb.TritonError.CANCELLED: "CANCELLED",
        pb.TritonError.INVALID_ARG: "INVALID_ARGUMENT",
    }
    return parse_error(codes.get(error.code(), ""), error.message(), "this server")
