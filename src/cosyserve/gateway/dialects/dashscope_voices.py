"""DashScope's voice enrolment over HTTP: one address, and the action in the body.

Its clients send where a recording lies. Unlike there, a `consent` is needed, as for every voice.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from cosyserve.contracts import Voice
from cosyserve.gateway.bodies import read_fields
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.dialects.dashscope import told_error
from cosyserve.gateway.dialects.dialect import read
from cosyserve.gateway.errors import ClientLeft
from cosyserve.gateway.limits import MAX_TEXT
from cosyserve.gateway.speech.body import AudioSource, Name
from cosyserve.gateway.telemetry import audit
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.voices.consents import Consents
from cosyserve.gateway.voices.enrolment import Enrolment

PATH = "/api/v1/services/audio/tts/customization"
MAX_PAGE = 1000
WRITTEN = "%Y-%m-%d %H:%M:%S"

Output = dict[str, Any]


class Create(BaseModel):
    action: Literal["create_voice"]
    prefix: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_]{1,32}$")]
    url: AudioSource
    consent: Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S")]
    language_hints: list[str] = Field(default_factory=list)
    text: Annotated[str, Field(max_length=MAX_TEXT)] = ""  # ours: what is said in the recording


class List(BaseModel):
    action: Literal["list_voice"]
    prefix: str = ""
    page_index: int = Field(default=0, ge=0)
    page_size: int = Field(default=10, ge=1, le=MAX_PAGE)


class One(BaseModel):
    action: Literal["query_voice", "delete_voice"]
    voice_id: Name


class Action(BaseModel):
    input: Annotated[Create | List | One, Field(discriminator="action")]


def routes(context: ConnectionContext, enrolment: Enrolment, consents: Consents) -> APIRouter:
    router = APIRouter(tags=["voices"])
    voices = context.voices

    async def create(asked: Create, record: Record) -> Output:
        id = f"{asked.prefix}-{uuid.uuid4().hex[:12]}"
        consent = await consents.statement(asked.consent)
        data = await context.interpreter.recording(asked.url, "url")
        language = next(iter(asked.language_hints), "")
        voice = await enrolment.learn(
            *(context.engine, data, record),
            text=asked.text,
            name=id,
            language=language,
            consent=consent,
        )
        await voices.add(id, voice)
        audit.note("voice.stored", record, voice, id=id)
        return {"voice_id": id}

    async def list_all(asked: List) -> Output:
        stored = [name for name, shipped in (await voices.names()).items() if not shipped]
        found = [name for name in stored if name.startswith(asked.prefix)]
        begin = asked.page_index * asked.page_size
        page = found[begin : begin + asked.page_size]
        entries = [{"voice_id": name} | _dates(await voices.get(name)) for name in page]
        return {"voice_list": entries}

    async def do(asked: Create | List | One, record: Record) -> Output:
        match asked:
            case Create():
                return await create(asked, record)
            case List():
                return await list_all(asked)
            case One(action="query_voice"):
                return _dates(await voices.get(asked.voice_id))
            case One():
                await voices.remove(asked.voice_id)
                audit.note("voice.removed", record, id=asked.voice_id)
                return {}

    @router.post(PATH, openapi_extra=OPENAPI_BODY)
    async def customize(request: Request) -> Response:
        """Creates, lists, shows or deletes voices, as DashScope's `VoiceEnrollmentService` asks."""
        record: Record = request.state.record
        answer: Output = {"request_id": record.request_id}
        try:
            body = await read_fields(request)
            output = await do(read(Action, body if isinstance(body, dict) else {}).input, record)
        except ClientLeft:
            raise
        except Exception as error:
            refusal = context.ledger.refuse(record, error)
            answer |= refusal.envelope.model_dump() | told_error(refusal.envelope.error)
            return JSONResponse(answer, refusal.status_code, refusal.headers)
        return JSONResponse(answer | {"output": output, "usage": {"count": 1}})

    return router


def _dates(voice: Voice) -> Output:
    try:
        created = datetime.fromisoformat(voice.created).astimezone(UTC).strftime(WRITTEN)
    except ValueError:  # it is not known
        created = ""
    return {"gmt_create": created, "gmt_modified": created, "status": "OK"}


OPENAPI_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
