"""The JSON on a WebSocket: messages of the client, events of the server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from cosyserve.gateway.errors import ErrorBody, Refusal, invalid_value
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.speech.framing import Usage

HTTP_ONLY = frozenset({"input", "stream_format"})
MAX_FAULT = 300  # characters of an error message, which may quote what was sent


class StartMessage(SpeechFields):
    type: Literal["start"]

    @model_validator(mode="after")
    def _has_no_text(self) -> StartMessage:
        """Whoever sends these here would wait for audio in vain, or for another kind of it."""
        for name in HTTP_ONLY & (self.model_extra or {}).keys():
            raise invalid_value("it is of a request over HTTP: text goes into 'text'", [name])
        return self


class TextMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class EndMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["end"]


class CancelMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["cancel"]


ClientMessage = StartMessage | TextMessage | EndMessage | CancelMessage
_messages: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def read_message(text: str | None) -> ClientMessage:
    """The message in a text frame; `text` is None for a binary frame."""
    if text is None:
        raise Refusal(
            400, "send JSON in text frames; binary frames are the server's", "invalid_json"
        )
    try:
        return _messages.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{first['msg']:.{MAX_FAULT}}"
        if first["type"] == "json_invalid":
            raise Refusal(400, f"the message is not JSON: {fault}", "invalid_json") from error
        raise invalid_value(fault, first["loc"][1:] or ("type",)) from error


class StartedEvent(BaseModel):
    type: Literal["started"] = "started"
    request_id: str
    content_type: str
    sample_rate: int


class DoneEvent(BaseModel):
    type: Literal["done"] = "done"
    request_id: str
    finish_reason: str  # as of an `AudioChunk`
    usage: Usage


class ErrorEvent(BaseModel):
    """An error. `request_id` is that of the utterance which it ends; None: it ends none."""

    type: Literal["error"] = "error"
    request_id: str | None
    error: ErrorBody
    retry_after: int | None  # seconds

    @classmethod
    def of(cls, refusal: Refusal, request_id: str | None = None) -> ErrorEvent:
        error = refusal.envelope.error
        wait = (refusal.headers or {}).get("Retry-After")
        return cls(request_id=request_id, error=error, retry_after=int(wait) if wait else None)


ServerEvent = StartedEvent | DoneEvent | ErrorEvent
