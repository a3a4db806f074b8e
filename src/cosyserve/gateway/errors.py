"""Every error as OpenAI's envelope: {"error": {"message", "type", "param", "code"}}.

What is not meant for a client stays out of the envelope.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from cosyserve.errors import (
    AudioError,
    ConsentError,
    CosyError,
    InputError,
    LLMServerError,
    MissingVoiceError,
    OverloadError,
    SlowReaderError,
    StoreError,
    VoiceError,
    WorkerError,
)

MAX_FAULT = 300  # characters of an error message, which may quote what was sent
ENUM_MEMBER = re.compile(r"<\w+\.\w+: ('\w+')>")


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class ErrorEnvelope(BaseModel):
    error: ErrorBody


class ClientLeft(Exception):  # noqa: N818 - an event, nobody's fault
    """The client closed its connection before it had its answer."""


class Refusal(HTTPException):
    """An answer that is an error. It is an HTTPException because FastAPI lets only those pass
    while it reads a body."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code
        self.param = param

    @property
    def envelope(self) -> ErrorEnvelope:
        if self.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        elif self.status_code >= 500:
            kind = "server_error"
        else:
            kind = "invalid_request_error"
        body = ErrorBody(message=self.detail, type=kind, param=self.param, code=self.code)
        return ErrorEnvelope(error=body)

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.envelope.model_dump(), self.status_code, self.headers)


def retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def as_refusal(error: Exception) -> Refusal:
    """The answer to a request that ended with this error."""
    match error:
        case Refusal():
            return error
        case HTTPException():
            code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
            return Refusal(error.status_code, error.detail, code, headers=error.headers)
        case RequestValidationError() | ValidationError():
            return _invalid(error)
        case OverloadError():
            headers = retry_after(error.retry_after)
            return Refusal(429, str(error), "overloaded", headers=headers)
        case SlowReaderError():
            return Refusal(408, str(error), "slow_reader")
        case InputError():
            return Refusal(400, str(error), "invalid_input")
        case AudioError():
            return Refusal(400, str(error), "invalid_audio")
        case MissingVoiceError():
            return Refusal(404, str(error), "voice_not_found", param="voice")
        case ConsentError():
            return Refusal(400, str(error), "consent_required", param="consent")
        case VoiceError():
            return Refusal(400, str(error), "invalid_voice")
        case WorkerError():
            return Refusal(503, str(error), "engine_unavailable", headers=retry_after(1))
        case LLMServerError():
            return Refusal(502, str(error), "llm_server_failed")
        case StoreError():
            headers = retry_after(1)
            return Refusal(503, str(error), "voice_store_unavailable", headers=headers)
        case CosyError():
            return Refusal(500, str(error), "engine_failed")
        case _:
            return Refusal(500, "internal error; the server's log has the details", "internal")


def _invalid(error: RequestValidationError | ValidationError) -> Refusal:
    """The answer to a request of the wrong shape: its first fault."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first['msg']}", "invalid_json")
    where = first["loc"]
    if isinstance(error, RequestValidationError):  # body, query or path goes first
        where = where[1:]
    return invalid_value(fault_of(first), where)


def fault_of(detail: Mapping[str, Any]) -> str:
    """What pydantic finds wrong, in the words of JSON and without those of Python."""
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "Input should be an object"
    return ENUM_MEMBER.sub(r"\1", detail["msg"])[:MAX_FAULT]


def invalid_value(fault: str, where: Sequence[int | str]) -> Refusal:
    """The answer to a wrong value, with the name of its field."""
    param = str(where[0]) if where else None
    message = f"{param}: {fault}" if param else fault
    return Refusal(400, message, "invalid_value", param=param)


async def reraise(request: Request, error: Exception) -> NoReturn:
    """An exception handler that leaves the error to `trace.Trace`, which answers all of them."""
    if isinstance(error, HTTPException) and not isinstance(error, Refusal):
        error = _unreadable(request, error)
    raise error


def _unreadable(request: Request, error: HTTPException) -> HTTPException:
    """The answer to a body that FastAPI can't read, which is all that it calls a bad request."""
    if error.status_code != HTTPStatus.BAD_REQUEST:
        return error
    json = "json" in request.headers.get("content-type", "").lower()
    return Refusal(400, error.detail, "invalid_json" if json else "invalid_form")
