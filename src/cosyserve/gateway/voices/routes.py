"""Routes: listing, learning, reading and removing voices."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import datetime
from typing import Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from cosyserve.contracts import TOKENS_PER_SECOND, Voice
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.telemetry import audit
from cosyserve.gateway.voices.body import OPENAPI_BODY, read_voice
from cosyserve.gateway.voices.consents import Consents
from cosyserve.gateway.voices.enrolment import Enrolment
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.file import from_bytes, to_bytes
from cosyserve.voices.fits import check_fits
from cosyserve.voices.transcript import transcript_warning

NOT_IN_IDS = re.compile(r"[^\w.-]+")  # of voices whose client reads the id from the answer


class VoiceEntry(BaseModel):
    id: str
    object: Literal["audio.voice"] = "audio.voice"
    shipped: bool


class VoiceName(BaseModel):
    id: str
    name: str


class VoiceList(BaseModel):
    """All voices, and their names once more as Open WebUI and Kokoro's clients read them."""

    object: Literal["list"] = "list"
    data: list[VoiceEntry]
    voices: list[VoiceName]


class VoiceDeleted(BaseModel):
    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: Literal[True] = True


class VoiceDetails(VoiceEntry):
    """OpenAI's fields, then ours."""

    name: str
    created_at: int
    type: Literal["audio_sample"] = "audio_sample"
    language: str
    prompt_text: str
    prompt_seconds: float
    consent: str
    created: str
    family: str
    fingerprint: str
    content_hash: str
    warning: str  # empty: there is none


def routes(
    models: Models,
    voices: KnownVoices,
    enrolment: Enrolment,
    consents: Consents,
    policy: Policy,
) -> APIRouter:
    router = APIRouter(prefix="/v1/audio/voices", tags=["voices"])

    def details(id: str, voice: Voice) -> VoiceDetails:
        return VoiceDetails(
            id=id,
            shipped=voices.is_shipped(voice),
            name=voice.name or id,
            created_at=_seconds(voice.created),
            language=voice.language,
            prompt_text=voice.prompt_text,
            prompt_seconds=len(voice.speech_tokens) / TOKENS_PER_SECOND,
            consent=voice.consent,
            created=voice.created,
            family=voice.family,
            fingerprint=voice.fingerprint,
            content_hash=voice.content_hash,
            warning=transcript_warning(voice),
        )

    @router.get("")
    async def list_voices(model: str = "") -> VoiceList:
        """Of all models, or the stored ones and those of the model that is named."""
        names = await voices.names(models.named(model, policy).model if model else None)
        return VoiceList(
            data=[VoiceEntry(id=name, shipped=names[name]) for name in names],
            voices=[VoiceName(id=name, name=name) for name in names],
        )

    @router.post("", status_code=201, openapi_extra=OPENAPI_BODY)
    async def add_voice(request: Request) -> VoiceDetails:
        """Learns a voice from a recording, or keeps a voice file.

        The recording is `file`, or `audio_sample` as OpenAI calls it; what is said in it `text`, or
        `ref_text`. A consent may be the id of one that was uploaded before. `model` is the one that
        learns the voice, if there are several.
        """
        body, record = await read_voice(request), request.state.record
        engine = models.named(body.model, policy)
        id = body.name if body.file is not None else NOT_IN_IDS.sub("-", body.name)
        await voices.check_free(id)
        consent = await consents.statement(body.consent)
        name, data = body.name, body.upload
        if _is_voice_file(data):
            learned = await asyncio.to_thread(from_bytes, data, "the voice file")
            voice = replace(learned, name=name, consent=consent)
            speaker = (engine if body.model else models.of_family(voice.family)).model
            check_fits(voice, speaker.voice_format)
        else:
            voice = await enrolment.learn(
                *(engine, data, record),
                text=body.text or body.ref_text,
                name=name,
                language=body.language,
                consent=consent,
            )
        await voices.add(id, voice)
        audit.note("voice.stored", record, voice, id=id)
        return details(id, voice)

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

    @router.delete("/{name}")
    async def remove_voice(name: str, request: Request) -> VoiceDeleted:
        """From now on nobody can name it; memories forget it when it was not used for a while."""
        await voices.remove(name)
        audit.note("voice.removed", request.state.record, id=name)
        return VoiceDeleted(id=name)

    return router


VOICE_FILE: dict[int | str, dict[str, object]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "A safetensors file."}
}


def _seconds(created: str) -> int:
    """Since 1970; 0 if it is not known."""
    try:
        return int(datetime.fromisoformat(created).timestamp())
    except ValueError:
        return 0


def _is_voice_file(data: bytes) -> bool:
    """A safetensors file is the length of its header, in 8 bytes, and JSON; no recording is."""
    return data[8:9] == b"{"
