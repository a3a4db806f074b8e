"""The fields of a request for speech, and reading them from JSON or a form.

Shapes and ranges are checked here; limits that an operator sets are checked in the routes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from cosyserve.audio import AudioFormat
from cosyserve.audio.formats import MAX_RATE, MIN_RATE
from cosyserve.contracts import MAX_SPEED, MIN_SPEED, Mode
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.limits import MAX_TEXT

MAX_FIELDS = 32
MAX_SEED = 2**63 - 1
SpokenMode = Literal[Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.INSTRUCT, Mode.PRESET]


def _from_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("not valid base64") from None


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Base64Audio = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Format = Annotated[AudioFormat, WithJsonSchema({"type": "string", "enum": list(AudioFormat)})]


class SpeechFields(BaseModel):
    """How a text is to be spoken. OpenAI's fields first, then ours."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Name
    voice: Name | Annotated[dict[Literal["id"], Name], Field(min_length=1)] = "default"
    instructions: str = Field(default="", max_length=MAX_TEXT)
    response_format: Format = AudioFormat.MP3
    speed: float = Field(default=1.0, ge=MIN_SPEED, le=MAX_SPEED)

    mode: SpokenMode | None = None
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    language: str = Field(default="", max_length=32)
    sample_rate: int | None = Field(default=None, ge=MIN_RATE, le=MAX_RATE)
    reference_audio: Base64Audio | None = None
    reference_text: str = Field(default="", max_length=MAX_TEXT)

    @property
    def voice_name(self) -> str:
        return self.voice if isinstance(self.voice, str) else self.voice["id"]


class SpeechBody(SpeechFields):
    """A whole request over HTTP."""

    input: Annotated[str, StringConstraints(min_length=1)]
    stream_format: Literal["audio", "sse"] = "audio"


def _form_schema() -> dict[str, Any]:
    schema = SpeechBody.model_json_schema()
    properties = schema["properties"]
    upload = {"type": "string", "format": "binary"}
    schema["properties"] = properties | {"voice": {"type": "string"}, "reference_audio": upload}
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
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "application/json":
        return SpeechBody.model_validate_json(await request.body())
    if kind == "multipart/form-data":
        return SpeechBody.model_validate(await _form_fields(request))
    raise Refusal(
        415, "send the body as application/json or multipart/form-data", "unsupported_media_type"
    )


async def _form_fields(request: Request) -> dict[str, str | bytes]:
    try:
        async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
            return {
                name: await value.read() if isinstance(value, UploadFile) else value
                for name, value in form.items()
            }
    except HTTPException:
        raise
    except Exception as error:  # a parser's surprise at bytes of a stranger
        raise Refusal(400, "the form can't be read", "invalid_form") from error
