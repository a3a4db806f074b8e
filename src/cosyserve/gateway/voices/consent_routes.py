"""Routes: recordings in which people agree to the use of their voice, as OpenAI has them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import BaseModel, Field

from cosyserve.gateway.voices.consents import Consents, no_consent
from cosyserve.gateway.voices.enrolment import Enrolment
from cosyserve.voices.consents import Consent

MAX_NAME = 256
Label = Annotated[str, Form(min_length=1, max_length=MAX_NAME, pattern=r"\S")]


class ConsentEntry(BaseModel):
    id: str
    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    name: str
    language: str
    created_at: int

    @classmethod
    def of(cls, consent: Consent) -> ConsentEntry:
        return cls(**vars(consent))


class ConsentList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ConsentEntry]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConsentName(BaseModel):
    name: str = Field(min_length=1, max_length=MAX_NAME, pattern=r"\S")


class ConsentDeleted(BaseModel):
    id: str
    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    deleted: Literal[True] = True


def routes(consents: Consents, enrolment: Enrolment) -> APIRouter:
    router = APIRouter(prefix="/v1/audio/voice_consents", tags=["voices"])

    @router.post("")
    async def add_consent(
        request: Request,
        name: Label,
        language: Annotated[str, Form(max_length=32)],
        recording: UploadFile,
    ) -> ConsentEntry:
        """Keeps the recording of somebody who agrees."""
        data = await recording.read()
        await enrolment.decode(data, request.state.record)
        return ConsentEntry.of(await consents.add(name, language, data))

    @router.get("")
    async def list_consents(
        after: str = "", limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> ConsentList:
        """The newest first."""
        entries = [ConsentEntry.of(consent) for consent in await consents.all()]
        ids = [entry.id for entry in entries]
        if after and after not in ids:
            raise no_consent(after, 400, "after")
        begin = ids.index(after) + 1 if after else 0
        page = entries[begin : begin + limit]
        return ConsentList(
            data=page,
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=begin + limit < len(entries),
        )

    @router.get("/{id}")
    async def show_consent(id: str) -> ConsentEntry:
        return ConsentEntry.of(await consents.get(id))

    @router.post("/{id}")
    async def rename_consent(id: str, body: ConsentName) -> ConsentEntry:
        return ConsentEntry.of(await consents.rename(id, body.name))

    @router.delete("/{id}")
    async def remove_consent(id: str) -> ConsentDeleted:
        await consents.remove(id)
        return ConsentDeleted(id=id)

    return router
