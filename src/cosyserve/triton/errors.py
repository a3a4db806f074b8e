"""Errors of ours on their way through a Triton server.

A stream carries no code of an error, only its message: so a message of ours begins with the kind of
the error. The server's own errors are known by their code, or by their words.
"""

from __future__ import annotations

import re

from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError

# The code of Triton's `TritonError` by the kind of an error.
TRITON_CODES = {
    "CosyError": "INTERNAL",
    "InputError": "INVALID_ARG",
    "AudioError": "INVALID_ARG",
    "CheckpointError": "INTERNAL",
    "VoiceError": "INVALID_ARG",
    "MissingVoiceError": "NOT_FOUND",
    "ConsentError": "INVALID_ARG",
    "StoreError": "INTERNAL",
    "OverloadError": "UNAVAILABLE",
    "SlowReaderError": "CANCELLED",
    "WorkerError": "UNAVAILABLE",
    "LLMServerError": "INTERNAL",
}
MESSAGE = re.compile(
    r"(?P<kind>\w+Error)"
    r"(?: \(retry after (?P<retry_after>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) s\))?"
    r": (?P<text>.*)",
    re.DOTALL,
)
BUSY = ("maximum queue size", "timeout expired")  # both come as UNAVAILABLE, as a dead server does
GONE = (
    "no available versions",
    "not healthy",
    "unhealthy",
    "Stream removed",
)  # a model, or the process that runs it
STREAMS = "decoupled transaction policy"
INSTEAD = (
    "it streams, which needs gRPC and --mode streaming: or ask cosyvoice2_offline, or a repository "
    "with decoupled_mode=false, or the port of `cosyserve serve --engine triton://…`"
)
RETRY_AFTER = 1.0  # seconds, where the server names none


def error_message(error: CosyError) -> str:
    """An error as the message of a Triton error."""
    retry = f" (retry after {error.retry_after} s)" if isinstance(error, OverloadError) else ""
    return f"{error.kind}{retry}: {error}"


def parse_error(code: str, message: str, address: str) -> CosyError:
    """The error of a message; `code` is the name of a gRPC status, "" where there is none."""
    if ours := MESSAGE.fullmatch(message):
        return CosyError.of_kind(
            ours["kind"], ours["text"], float(ours["retry_after"] or RETRY_AFTER)
        )
    where = f"Triton at {address}: {message}"
    if STREAMS in message:
        where += f" ({INSTEAD})"
    if code == "RESOURCE_EXHAUSTED" or _contains(message, BUSY):
        return OverloadError(where, RETRY_AFTER)
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED") or _contains(message, GONE):
        return WorkerError(where)
    if code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"):
        return InputError(where)
    return CosyError(where)


def _contains(message: str, words: tuple[str, ...]) -> bool:
    return any(word in message for word in words)
