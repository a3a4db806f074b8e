"""Errors of ours on their way through a Triton server. Knows no protocol.

A stream tells no code of an error, only its words: so a model of ours says its kind in them. What
the server itself complains of is known by its code, or by its words.
"""

from __future__ import annotations

import re

from cosyserve.errors import (
    AudioError,
    CosyError,
    InputError,
    MissingVoiceError,
    OverloadError,
    StoreError,
    VoiceError,
    WorkerError,
)

KINDS = {
    kind.__name__: kind
    for kind in (
        *(CosyError, InputError, AudioError, VoiceError, MissingVoiceError),
        *(StoreError, WorkerError),
    )
}
LABEL = re.compile(r"(\w+Error): (.*)", re.DOTALL)
BUSY = ("maximum queue size", "timeout expired")  # both come as UNAVAILABLE, as a dead server does
GONE = (
    "no available versions",
    "not healthy",
    "unhealthy",
    "Stream removed",
)  # a model, or the process that runs it
RETRY_AFTER = 1.0


def error_message(error: CosyError) -> str:
    """What a model of ours says of an error."""
    return f"{type(error).__name__}: {error}"


def parse_error(code: str, message: str, address: str) -> CosyError:
    """`code` is the name of a gRPC status, "" where the server didn't say."""
    if label := LABEL.fullmatch(message):
        kind, words = label.groups()
        if kind == OverloadError.__name__:
            return OverloadError(words, RETRY_AFTER)
        return KINDS.get(kind, CosyError)(words)
    where = f"Triton at {address}: {message}"
    if code == "RESOURCE_EXHAUSTED" or _says(message, BUSY):
        return OverloadError(where, RETRY_AFTER)
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED") or _says(message, GONE):
        return WorkerError(where)
    if code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"):
        return InputError(where)
    return CosyError(where)


def _says(message: str, words: tuple[str, ...]) -> bool:
    return any(word in message for word in words)
