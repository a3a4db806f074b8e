"""Route: several texts to speech in one answer.

An item is a request of its own, with a log line, an id and an error of its own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cosyserve.errors import OverloadError
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.errors import ErrorBody, Refusal, invalid_value
from cosyserve.gateway.limits import Gate, Limits, shutting_down, took_too_long
from cosyserve.gateway.rates import Rates
from cosyserve.gateway.speech.body import SpeechBody
from cosyserve.gateway.speech.dialects import translate
from cosyserve.gateway.speech.framing import Usage, framing_of
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
BODIES = 4  # as large as so many bodies may all audio together be


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


class SpeechBatch:
    """The items of one request, spoken a few at a time."""

    def __init__(
        self,
        interpreter: Interpreter,
        limits: Limits,
        gate: Gate,
        rates: Rates,
        ledger: Ledger,
        record: Record,
        shared: dict[str, Any],
        encoders: Encoders,
    ) -> None:
        """`record` is that of the whole request, `shared` are fields for items that lack them."""
        self._interpreter = interpreter
        self._limits = limits
        self._gate = gate
        self._rates = rates
        self._ledger = ledger
        self._record = record
        self._shared = shared
        self._encoders = encoders
        self._fetches = interpreter.fetches()
        self._bytes = 0  # of audio

    async def run(self, items: list[dict[str, Any]], key: str | None) -> list[ItemResult]:
        """One speaker is admitted with the batch; more only where the limits have room for them."""
        waiting = iter(list(enumerate(items)))
        results: list[ItemResult] = []
        with ExitStack() as admitted:
            speakers = 1
            while speakers < min(AT_ONCE, len(items)):
                try:
                    admitted.enter_context(self._gate.admit(key))
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
        record = self._record.part(index + 1, "BATCH", PATH)
        record.headers = self._record.headers  # there is one answer
        try:
            result = await self._spoken(index, fields, record)
            record.status = 200
            return result
        except asyncio.CancelledError:
            record.status = CLIENT_LEFT
            if not self._record.client_left:
                late = took_too_long("batch", self._limits.seconds)
                reason = shutting_down() if self._gate.closed else late
                record.status = self._ledger.refuse(record, reason).status_code
            raise
        except Exception as error:
            refusal = self._ledger.refuse(record, error)
            record.status = refusal.status_code
            return ItemResult(index=index, status="error", error=refusal.envelope.error)
        finally:
            self._ledger.finish(record, PATH)

    async def _spoken(self, index: int, fields: dict[str, Any], record: Record) -> ItemResult:
        body = SpeechBody.model_validate(self._shared | translate(fields))
        record.characters, record.consent = len(body.input), body.consent
        check_text(body.input, self._limits, "input")
        if body.timestamps:
            raise invalid_value("a batch has none: ask for one text at a time", ["timestamps"])
        self._rates.take(record, len(body.input))
        framing = framing_of("audio", body.response_format, body.sample_rate, self._encoders)
        while True:
            try:
                request = await self._interpreter.request(body, body.input, record, self._fetches)
                engine = self._interpreter.engine(body.model)
                speaking = Speaking(
                    *(engine, request, framing, record, body.max_new_tokens),
                    watermark=self._interpreter.watermark,
                    trim=self._interpreter.trims(body),
                )
                pieces = await self._hear(speaking)
                break
            except OverloadError as full:  # who asks for many at once has time
                if record.first_audio is not None:
                    raise
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

    async def _hear(self, speaking: Speaking) -> list[bytes]:
        limit, pieces = BODIES * self._limits.body_bytes, []
        try:
            async with aclosing(speaking.audio()) as audio:
                async for piece in audio:
                    pieces.append(piece)
                    self._bytes += len(piece)
                    if self._bytes > limit:
                        raise _too_large(limit)
            return pieces
        except BaseException:
            self._bytes -= sum(map(len, pieces))
            raise


def routes(
    interpreter: Interpreter,
    limits: Limits,
    gate: Gate,
    rates: Rates,
    ledger: Ledger,
    encoders: Encoders,
) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.post(PATH, response_model=BatchResult)
    async def speech_batch(body: BatchBody, request: Request) -> StreamingResponse:
        """Speaks several texts, and answers when all of them are spoken."""
        shared, record = translate(body.model_extra or {}), request.state.record
        texts = [item.get("input") or shared.get("input") for item in body.items]
        _check_length(texts, INPUTS * limits.input_characters)
        batch = SpeechBatch(interpreter, limits, gate, rates, ledger, record, shared, encoders)
        results = await batch.run(body.items, getattr(request.state, "key", None))
        succeeded = sum(result.status == "success" for result in results)
        result = BatchResult(
            id=record.request_id,
            results=results,
            total=len(results),
            succeeded=succeeded,
            failed=len(results) - succeeded,
        )
        return StreamingResponse(_json(result), media_type="application/json")

    return router


async def _json(batch: BatchResult) -> AsyncIterator[str]:
    """The answer item by item: whatever is written at once holds up all other requests."""
    yield batch.model_dump_json(exclude={"results"}).removesuffix("}") + ', "results": ['
    for result in batch.results:
        before = ", " if result.index else ""
        yield before + await asyncio.to_thread(result.model_dump_json, exclude_none=True)
    yield "]}"


def _too_large(limit: int) -> Refusal:
    message = (
        f"the audio of all items is larger than the limit of {limit} bytes: ask for fewer items "
        "at once, or for a smaller format"
    )
    return Refusal(413, message, "answer_too_large")


def _check_length(texts: list[Any], limit: int) -> None:
    length = sum(len(text) for text in texts if isinstance(text, str))
    if length > limit:
        message = f"the items have {length} characters together; the limit is {limit}"
        raise Refusal(400, message, "input_too_long", param="items")
