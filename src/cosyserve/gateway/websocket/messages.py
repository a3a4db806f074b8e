"""What is said on a WebSocket beside audio, in JSON: a client's messages and the server's events.

Knows no order in which they come.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cosyserve.gateway.errors import ErrorBody, Refusal, invalid_value
from cosyserve.gateway.framing import Usage
from cosyserve.gateway.requests import SpeechFields

MAX_FAULT = 300  # characters of a complaint, which may quote what was sent


class Start(SpeechFields):
    type: Literal["start"]


class Text(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class End(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["end"]


class Cancel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["cancel"]


ClientMessage = Start | Text | End | Cancel
_messages: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def read_message(text: str | None) -> ClientMessage:
    """None: the frame was binary."""
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


class Started(BaseModel):
    type: Literal["started"] = "started"
    request_id: str
    content_type: str
    sample_rate: int


class Done(BaseModel):
    type: Literal["done"] = "done"
    request_id: str
    finish_reason: str  # as of an `AudioChunk`
    usage: Usage


class Failed(BaseModel):
    """`request_id` is that of the utterance that ends by it; None: only a message was refused."""

    type: Literal["error"] = "error"
    request_id: str | None
    error: ErrorBody
    retry_after: int | None  # seconds

    @classmethod
    def of(cls, refused: Refusal, request_id: str | None = None) -> Failed:
        error = refused.envelope.error
        wait = (refused.headers or {}).get("Retry-After")
        return cls(request_id=request_id, error=error, retry_after=int(wait) if wait else None)


ServerEvent = Started | Done | Failed
