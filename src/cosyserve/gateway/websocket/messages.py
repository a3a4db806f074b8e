"""The JSON that a client sends on a WebSocket."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from cosyserve.gateway.errors import MAX_FAULT, invalid_value
from cosyserve.gateway.speech.body import SpeechFields

HTTP_ONLY = frozenset({"input", "stream_format"})


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


def read_message(value: dict[str, Any]) -> ClientMessage:
    try:
        return _messages.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = first["loc"][1:] or ("type",)
        raise invalid_value(f"{first['msg']:.{MAX_FAULT}}", where) from error
