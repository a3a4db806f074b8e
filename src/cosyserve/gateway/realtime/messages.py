"""The events of a Realtime client that a text-to-speech model understands.

Fields for models that listen, think or call tools are not read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
)

from cosyserve.audio import AudioFormat
from cosyserve.contracts import MAX_SPEED, MIN_SPEED
from cosyserve.gateway.errors import Refusal, fault_of
from cosyserve.gateway.speech.body import Name


def _with_audio(modalities: list[str]) -> list[str]:
    if "audio" not in modalities:
        raise ValueError("this model answers with audio alone: ask for ['audio']")
    return modalities


Modalities = Annotated[list[Literal["audio", "text"]], AfterValidator(_with_audio)]
Metadata = Annotated[dict[str, str], Field(max_length=16)]


class PCM(BaseModel):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class PCMU(BaseModel):
    type: Literal["audio/pcmu"] = "audio/pcmu"


WireFormat = Annotated[PCM | PCMU, Field(discriminator="type")]
FORMATS = {"audio/pcm": AudioFormat.PCM, "audio/pcmu": AudioFormat.MULAW}


class VoiceId(BaseModel):
    id: Name


class AudioOutput(BaseModel):
    format: WireFormat | None = None
    voice: Name | VoiceId | None = None
    speed: Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)] | None = None


class AudioFields(BaseModel):
    output: AudioOutput | None = None


class SpokenFields(BaseModel):
    """How a session, or one response of it, is to be spoken; None leaves it as it is."""

    output_modalities: Modalities | None = None
    audio: AudioFields | None = None
    instructions: str | None = None


class SessionFields(SpokenFields):
    type: Literal["realtime"] = "realtime"


class Content(BaseModel):
    type: Literal["input_text", "output_text", "text"]
    text: str


class ConversationItem(BaseModel):
    id: Name | None = None
    type: Literal["message"]
    role: Literal["user", "system", "assistant"]
    content: list[Content]

    @property
    def said(self) -> str:
        """What is to be spoken of it: what a user writes, and nothing else."""
        return " ".join(part.text for part in self.content) if self.role == "user" else ""


class ResponseFields(SpokenFields):
    conversation: Literal["auto", "none"] | None = None
    input: list[ConversationItem] | None = None
    metadata: Metadata | None = None


class SessionUpdate(BaseModel):
    type: Literal["session.update"]
    session: SessionFields


class ItemCreate(BaseModel):
    type: Literal["conversation.item.create"]
    item: ConversationItem


class ResponseCreate(BaseModel):
    type: Literal["response.create"]
    response: ResponseFields | None = None


class ResponseCancel(BaseModel):
    type: Literal["response.cancel"]
    response_id: str | None = None


ClientEvent = SessionUpdate | ItemCreate | ResponseCreate | ResponseCancel
_events: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


def read_event(value: dict[str, Any]) -> ClientEvent:
    try:
        return _events.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"][1:])) or "type"
        message = f"{param}: {fault_of(first)}"
        raise Refusal(400, message, "invalid_value", param=param) from error
