"""The fields of a request to learn a voice, in JSON or a form. OpenAI's names and ours."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from cosyserve.gateway.bodies import read_base64, read_fields
from cosyserve.gateway.errors import invalid_value
from cosyserve.gateway.limits import MAX_TEXT

SAMPLE = "audio_sample"


def _read_upload(value: object) -> object:
    return read_base64(value) if isinstance(value, str) else value


Upload = Annotated[
    bytes,
    BeforeValidator(_read_upload),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Line = Annotated[str, Field(max_length=MAX_TEXT)]


class VoiceBody(BaseModel):
    """A recording, or a voice file, and whose voice it is."""

    name: Line
    consent: Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]
    file: Upload | None = None
    audio_sample: Upload | None = None
    text: Line = ""
    ref_text: Line = ""
    language: Annotated[str, Field(max_length=32)] = ""
    model: Annotated[str, Field(max_length=200)] = ""  # the one that learns it

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_recording(cls, fields: object) -> object:
        """Null is a field that was not sent, as everywhere."""
        if not isinstance(fields, dict):
            return fields
        if fields.get("type") not in (None, SAMPLE):
            raise invalid_value(f"voices are made from recordings: '{SAMPLE}'", ["type"])
        return {name: value for name, value in fields.items() if value is not None}

    @model_validator(mode="after")
    def _has_one_upload(self) -> Self:
        if (self.file is None) == (self.audio_sample is None):
            raise invalid_value("send one recording, as file or audio_sample", ["file"])
        return self

    @property
    def upload(self) -> bytes:
        return self.file if self.file is not None else self.audio_sample or b""


def _form_schema() -> dict[str, Any]:
    schema = VoiceBody.model_json_schema()
    upload = {"type": "string", "format": "binary"}
    schema["properties"] |= {"file": upload, SAMPLE: upload}
    return schema


OPENAPI_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _form_schema()},
            "application/json": {"schema": VoiceBody.model_json_schema()},
        },
    }
}


async def read_voice(request: Request) -> VoiceBody:
    return VoiceBody.model_validate(await read_fields(request))
