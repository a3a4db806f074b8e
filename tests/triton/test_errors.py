"""Errors through Triton's wire form and back, and what the server's own errors become."""

from __future__ import annotations

import pytest

from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError
from cosyserve.triton.errors import RETRY_AFTER, TRITON_CODES, error_message, parse_error

KINDS = [CosyError, *CosyError.kinds.values()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("message", ["", "a: b\nc", "InputError (retry after 3 s): d"])
def test_every_error_of_ours_comes_back(kind: type[CosyError], message: str) -> None:
    error = CosyError.of_kind(kind.__name__, message, 2.25)
    parsed = parse_error("INTERNAL", error_message(error), "here:1")
    assert (type(parsed), str(parsed)) == (kind, message)
    assert getattr(parsed, "retry_after", None) == getattr(error, "retry_after", None)


@pytest.mark.parametrize("seconds", [0.0, 1e-5, 0.1, 3.0, 1e20])
def test_when_to_retry_comes_back(seconds: float) -> None:
    parsed = parse_error("", error_message(OverloadError("full", seconds)), "here:1")
    assert isinstance(parsed, OverloadError)
    assert parsed.retry_after == seconds


def test_an_overload_without_a_time_has_one_all_the_same() -> None:
    parsed = parse_error("", "OverloadError: full", "here:1")
    assert isinstance(parsed, OverloadError)
    assert (str(parsed), parsed.retry_after) == ("full", RETRY_AFTER)


def test_a_class_that_others_do_not_know_comes_back_as_its_nearest() -> None:
    class PrivateError(InputError): ...

    assert type(parse_error("", error_message(PrivateError("a")), "here:1")) is InputError
    assert type(parse_error("", "PrivateError: a", "here:1")) is CosyError


def test_every_error_has_a_code_of_tritons() -> None:
    assert set(TRITON_CODES) == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("UNAVAILABLE", "Exceeds maximum queue size", OverloadError),
        ("", "Request timeout expired", OverloadError),
        ("RESOURCE_EXHAUSTED", "", OverloadError),
        ("UNAVAILABLE", "failed to connect", WorkerError),
        ("DEADLINE_EXCEEDED", "", WorkerError),
        ("", "Stub process 'x_0' is not healthy.", WorkerError),
        ("", "Request for unknown model: 'x' has no available versions", WorkerError),
        ("INVALID_ARGUMENT", "expects BYTES", InputError),
        ("NOT_FOUND", "unknown model", InputError),
        ("INTERNAL", "oh", CosyError),
    ],
)
def test_what_the_server_complains_of(code: str, message: str, kind: type[CosyError]) -> None:
    error = parse_error(code, message, "here:1")
    assert type(error) is kind
    assert "here:1" in str(error)
