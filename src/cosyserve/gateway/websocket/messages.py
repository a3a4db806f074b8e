"""The JSON that a client sends on a WebSocket."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from cosyserve.gateway.connection.text import TextSplit
from cosyserve.gateway.errors import fault_of, invalid_value
from cosyserve.gateway.speech.body import SpeechFields

HTTP_ONLY = frozenset({"input", "stream_format"})

# Visible ASCII: it goes in front of binary audio, behind its length.
CONTEXT_ID = r"^[!-~]{1,64}$"
ContextId = Annotated[str, StringConstraints(pattern=CONTEXT_ID)]


class StartMessage(SpeechFields):
    type: Literal["start"]
    context: ContextId | None = None
    audio: Literal["binary", "base64"] = "binary"
    split: TextSplit | None = None

    @model_validator(mode="after")
    def _has_no_text(self) -> StartMessage:
        """Whoever sends these here would wait for audio in vain, or for another kind of it."""
        for name in HTTP_ONLY & (self.model_extra or {}).keys():
            raise invalid_value("it is of a request over HTTP: text goes into 'text'", [name])
        return self


class _OfAContext(BaseModel):
    model_config = ConfigDict(extra="forbid")

    context: ContextId | None = None


class TextMessage(_OfAContext):
    type: Literal["text"]
    text: str


class FlushMessage(_OfAContext):
    type: Literal["flush"]


class EndMessage(_OfAContext):
    type: Literal["end"]


class CancelMessage(_OfAContext):
    type: Literal["cancel"]


class KeepAliveMessage(BaseModel):
    """Of the connection, with all of its contexts."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["keep_alive"]


FollowingMessage = TextMessage | FlushMessage | EndMessage | CancelMessage
ClientMessage = StartMessage | FollowingMessage | KeepAliveMessage
_messages: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def read_message(value: dict[str, Any]) -> ClientMessage:
    try:
        return _messages.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = first["loc"][1:] or ("type",)
        raise invalid_value(fault_of(first), where) from error


def context_of(value: dict[str, Any]) -> str:
    """The context that a message names, even if all else in it is wrong; "": it names none."""
    context = value.get("context")
    return context if isinstance(context, str) and re.fullmatch(CONTEXT_ID, context) else ""
