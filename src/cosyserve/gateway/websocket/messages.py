"""The JSON that a client sends on a WebSocket."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.speech.body import SpeechFields

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
