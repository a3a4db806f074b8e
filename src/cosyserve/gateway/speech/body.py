"""The fields of a request for speech, and reading them from JSON or a form.

Shapes and ranges are checked here; limits that an operator sets are checked in the routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import from_json

from cosyserve.audio import AudioFormat
from cosyserve.audio.formats import MAX_RATE, MIN_RATE
from cosyserve.contracts import MAX_SPEED, MAX_TEMPERATURE, MIN_SPEED, Mode
from cosyserve.gateway.bodies import JSONBounds, read_base64, read_fields
from cosyserve.gateway.limits import MAX_TEXT
from cosyserve.gateway.speech.dialects import translate

MAX_SEED = MAX_TOKENS = 2**63 - 1
MAX_TOP_K = 64  # with more, the steps of all listeners are computed more slowly
SpokenMode = Literal[Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.INSTRUCT, Mode.PRESET]
StreamFormat = Literal["audio", "sse"]


@dataclass(frozen=True)
class AudioURL:
    """Where a recording lies in the network."""

    url: str


def _read_source(value: object) -> object:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, list):
        raise ValueError("send one recording")
    if not isinstance(value, str):
        return value
    if value[:8].lower().startswith(("http://", "https://")):
        return AudioURL(value)
    return read_base64(value)


def _read_json(value: object) -> object:
    """Of a form, which has texts alone."""
    if not isinstance(value, str):
        return value
    JSONBounds().take(value)
    return from_json(value)


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
VoiceName = Annotated[
    Name,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 200},
                {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            ]
        }
    ),
]
AudioSource = Annotated[
    bytes | AudioURL,
    BeforeValidator(_read_source),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
LexiconText = Annotated[str, Field(max_length=MAX_TEXT)]
LexiconFields = Annotated[dict[LexiconText, LexiconText], BeforeValidator(_read_json)]
Format = Annotated[AudioFormat, WithJsonSchema({"type": "string", "enum": list(AudioFormat)})]


class ReferenceFields(BaseModel):
    """A recording and what is said in it, as other servers have them in `references`."""

    audio: AudioSource = Field(
        validation_alias=AliasChoices("audio", "audio_path", "ref_audio", "data")
    )
    text: Annotated[str, Field(max_length=MAX_TEXT)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, fields: object) -> object:
        """The recording may have any of several names, and the others be null."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


class SpeechFields(BaseModel):
    """How a text is to be spoken. OpenAI's fields first, then ours, then those of other servers.

    A field that nobody knows is kept in `model_extra`.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = Field(default="", max_length=200)
    voice: VoiceName = "default"
    instructions: str = Field(default="", max_length=MAX_TEXT)
    response_format: Format = AudioFormat.MP3
    speed: float = Field(default=1.0, ge=MIN_SPEED, le=MAX_SPEED)

    mode: SpokenMode | None = None
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    language: str = Field(default="", max_length=32)
    lexicon: LexiconFields = Field(default_factory=dict)
    sample_rate: int | None = Field(default=None, ge=MIN_RATE, le=MAX_RATE)
    reference_audio: AudioSource | None = None
    reference_text: str = Field(default="", max_length=MAX_TEXT)
    consent: str = Field(default="", max_length=MAX_TEXT)
    trim_leading_silence: bool | None = None
    timestamps: Literal["word"] | None = None

    references: Annotated[list[ReferenceFields], Field(max_length=1)] = Field(default_factory=list)
    task_type: Literal["Base", "CustomVoice", "VoiceDesign"] | None = None
    x_vector_only_mode: bool = False
    max_new_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    temperature: float | None = Field(default=None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1, le=MAX_TOP_K)

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, fields: object) -> object:
        return translate(fields) if isinstance(fields, dict) else fields


class SpeechBody(SpeechFields):
    """A whole request over HTTP."""

    input: Annotated[str, StringConstraints(min_length=1)]
    stream: bool = False
    stream_format: StreamFormat | None = None


def _form_schema() -> dict[str, Any]:
    schema = SpeechBody.model_json_schema()
    properties = schema["properties"]
    upload = {"type": "string", "format": "binary"}
    schema["properties"] = properties | {"voice": {"type": "string"}, "reference_audio": upload}
    del schema["properties"]["references"]
    return schema


OPENAPI_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": SpeechBody.model_json_schema()},
            "multipart/form-data": {"schema": _form_schema()},
        },
    }
}


async def read_speech(request: Request) -> SpeechBody:
    return SpeechBody.model_validate(await read_fields(request))
