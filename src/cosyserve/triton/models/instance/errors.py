"""Errors of ours as Triton's, and back."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb

from cosyserve.engine.compute.errors import client_error
from cosyserve.errors import CosyError
from cosyserve.triton.errors import TRITON_CODES, error_message, parse_error


def triton_error(error: Exception) -> pb.TritonError:
    """The part of an error that a client may know; the rest goes to the log."""
    failure = client_error(error)
    code = getattr(pb.TritonError, TRITON_CODES[failure.kind])
    return pb.TritonError(error_message(failure), code)


def check(response: Any) -> None:
    """Raises the error of another model's response, if it is one."""
    if response.has_error():
        raise our_error(response.error())


def our_error(error: pb.TritonError) -> CosyError:
    """The error that another model of this server answered with."""
    codes = {
        pb.TritonError.UNAVAILABLE: "UNAVAILABLE",
        pb.TritonError.CANCELLED: "CANCELLED",
        pb.TritonError.INVALID_ARG: "INVALID_ARGUMENT",
    }
    return parse_error(codes.get(error.code(), ""), error.message(), "this server")
