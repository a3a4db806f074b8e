"""Route: several texts to speech in one answer.

An item is a request of its own, with a log line, an id and an error of its own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cosyserve.contracts import Engine
from cosyserve.errors import OverloadError
from cosyserve.gateway.errors import ErrorBody, Refusal
from cosyserve.gateway.limits import Gate, Limits
from cosyserve.gateway.speech.body import SpeechBody
from cosyserve.gateway.speech.dialects import translate
from cosyserve.gateway.speech.framing import Usage, open_framing
from cosyserve.gateway.speech.interpreter import Interpreter
from cosyserve.gateway.speech.routes import check_text
from cosyserve.gateway.speech.speaking import Speaking
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.telemetry.trace import CLIENT_LEFT, Ledger

PATH = "/v1/audio/speech/batch"
MAX_ITEMS = 32
AT_ONCE = 8
MIN_WAIT = 0.05  # seconds, until a full engine is asked again
INPUTS = 4  # as long as so many requests' texts may all texts together be, for memory's sake


class BatchBody(BaseModel):
    """Items, each with the fields of a request, and fields for all items that lack them."""

    model_config = ConfigDict(extra="allow")

    items: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=MAX_ITEMS)]


class ItemResult(BaseModel):
    index: int
    status: str  # success or error
    audio_data: str | None = None  # base64
    format: str | None = None
    media_type: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    error: ErrorBody | None = None


class BatchResult(BaseModel):
    id: str
    results: list[ItemResult]
    total: int
    succeeded: int
    failed: int


class Batch:
    """The items of one request, spoken a few at a time."""

    def __init__(
        self, engine: Engine, interpreter: Interpreter, limits: Limits, ledger: Ledger, id: str
    ) -> None:
        self._engine = engine
        self._interpreter = interpreter
        self._limits = limits
        self._ledger = ledger
        self._id = id

    async def run(
        self, items: list[dict[str, Any]], gate: Gate, key: int | None
    ) -> list[ItemResult]:
        """One speaker is admitted with the batch; more only where the limits have room for them."""
        waiting = iter(list(enumerate(items)))
        results: list[ItemResult] = []
        with ExitStack() as admitted:
            speakers = 1
            while speakers < min(AT_ONCE, len(items)):
                try:
                    admitted.enter_context(gate.admit(key))
                except Refusal:
                    break
                speakers += 1
            async with asyncio.TaskGroup() as tasks:
                for _ in range(speakers):
                    tasks.create_task(self._speak_all(waiting, results))
        return sorted(results, key=lambda result: result.index)

    async def _speak_all(
        self, waiting: Iterator[tuple[int, dict[str, Any]]], results: list[ItemResult]
    ) -> None:
        for index, fields in waiting:
            results.append(await self._speak(index, fields))

    async def _speak(self, index: int, fields: dict[str, Any]) -> ItemResult:
        record = Record(f"{self._id}.{index + 1}", "BATCH", PATH)
        try:
            result = await self._spoken(index, fields, record)
            record.status = 200
            return result
        except asyncio.CancelledError:
            record.status = CLIENT_LEFT
            raise
        except Exception as error:
            refusal = self._ledger.refuse(record, error)
            record.status = refusal.status_code
            return ItemResult(index=index, status="error", error=refusal.envelope.error)
        finally:
            self._ledger.finish(record, PATH)

    async def _spoken(self, index: int, fields: dict[str, Any], record: Record) -> ItemResult:
        body = SpeechBody.model_validate(fields)
        record.characters, record.consent = len(body.input), body.consent
        check_text(body.input, self._limits, "input")
        request = await self._interpreter.request(body, body.input)
        while True:
            framing = await asyncio.to_thread(
                open_framing, "audio", body.response_format, body.sample_rate
            )
            speaking = Speaking(self._engine, request, framing, record, body.max_new_tokens)
            try:
                pieces = [piece async for piece in speaking.audio()]
                break
            except OverloadError as full:  # who asks for many at once has time
                await asyncio.sleep(max(full.retry_after, MIN_WAIT))
        audio = await asyncio.to_thread(base64.b64encode, b"".join(pieces))
        return ItemResult(
            index=index,
            status="success",
            audio_data=audio.decode(),
            format=body.response_format,
            media_type=framing.media_type,
            finish_reason=record.finish,
            usage=speaking.usage,
        )


def routes(
    engine: Engine, interpreter: Interpreter, limits: Limits, gate: Gate, ledger: Ledger
) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.post(PATH, response_model_exclude_none=True)
    async def speech_batch(body: BatchBody, request: Request) -> BatchResult:
        """Speaks several texts, and answers when all of them are spoken."""
        shared = translate(body.model_extra or {})
        items = [shared | translate(item) for item in body.items]
        _check_length(items, INPUTS * limits.input_characters)
        id = request.state.record.request_id
        batch = Batch(engine, interpreter, limits, ledger, id)
        results = await batch.run(items, gate, getattr(request.state, "key", None))
        succeeded = sum(result.status == "success" for result in results)
        return BatchResult(
            id=id,
            results=results,
            total=len(results),
            succeeded=succeeded,
            failed=len(results) - succeeded,
        )

    return router


def _check_length(items: list[dict[str, Any]], limit: int) -> None:
    length = sum(len(item["input"]) for item in items if isinstance(item.get("input"), str))
    if length > limit:
        message = f"the items have {length} characters together; the limit is {limit}"
        raise Refusal(400, message, "input_too_long", param="items")
