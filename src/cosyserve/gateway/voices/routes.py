"""Routes: listing, learning, reading and removing voices."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Response, UploadFile
from pydantic import BaseModel

from cosyserve.contracts import TOKENS_PER_SECOND, Engine, Recording, Voice, VoiceFormat
from cosyserve.gateway.limits import MAX_TEXT
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.file import from_bytes, to_bytes
from cosyserve.voices.fits import check_fits

Line = Annotated[str, Form(max_length=MAX_TEXT)]
RequiredLine = Annotated[str, Form(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]


class VoiceEntry(BaseModel):
    id: str
    object: str = "voice"
    shipped: bool


class VoiceList(BaseModel):
    object: str = "list"
    data: list[VoiceEntry]


class VoiceDetails(VoiceEntry):
    language: str
    prompt_text: str
    prompt_seconds: float
    consent: str
    created: str
    family: str
    fingerprint: str
    content_hash: str


def routes(engine: Engine, voices: KnownVoices, decoder: Decoder) -> APIRouter:
    router = APIRouter(prefix="/v1/audio/voices", tags=["voices"])

    def details(name: str, voice: Voice) -> VoiceDetails:
        return VoiceDetails(
            id=name,
            shipped=voices.is_shipped(voice),
            language=voice.language,
            prompt_text=voice.prompt_text,
            prompt_seconds=len(voice.speech_tokens) / TOKENS_PER_SECOND,
            consent=voice.consent,
            created=voice.created,
            family=voice.family,
            fingerprint=voice.fingerprint,
            content_hash=voice.content_hash,
        )

    @router.get("")
    async def list_voices() -> VoiceList:
        names = await voices.names()
        return VoiceList(data=[VoiceEntry(id=name, shipped=names[name]) for name in names])

    @router.post("", status_code=201)
    async def add_voice(
        name: Annotated[str, Form()],
        consent: RequiredLine,
        file: UploadFile,
        text: Line = "",
        language: Annotated[str, Form(max_length=32)] = "",
    ) -> VoiceDetails:
        """Learns a voice from a recording, or keeps a voice file."""
        await voices.check_free(name)
        data = await file.read()
        if _is_voice_file(data):
            upload = await asyncio.to_thread(from_bytes, data, "the voice file")
            voice = replace(upload, name=name, consent=consent)
            check_fits(voice, VoiceFormat(engine.model.family, engine.model.fingerprint))
        else:
            audio = await decoder.decode(data)
            recording = Recording(audio.samples, audio.rate, text, name, language, consent)
            voice = await engine.embed(recording)
        await voices.add(name, voice)
        return details(name, voice)

    @router.get("/{name}")
    async def show_voice(name: str) -> VoiceDetails:
        return details(name, await voices.get(name))

    @router.get("/{name}/file", response_class=Response, responses=VOICE_FILE)
    async def voice_file(name: str) -> Response:
        data = await asyncio.to_thread(to_bytes, await voices.get(name))
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}.safetensors"
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"Content-Disposition": disposition},
        )

    @router.delete("/{name}", status_code=204)
    async def remove_voice(name: str) -> None:
        await voices.remove(name)

    return router


VOICE_FILE: dict[int | str, dict[str, object]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "A safetensors file."}
}


def _is_voice_file(data: bytes) -> bool:
    """A safetensors file is the length of its header, in 8 bytes, and JSON; no recording is."""
    return data[8:9] == b"{"
