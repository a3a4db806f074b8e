"""Cartesia's WebSocket: several contexts, each with pieces of a text."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent, WordsEvent
from cosyserve.gateway.connection.streams import SpeechStream
from cosyserve.gateway.dialects.dialect import (
    DialectConnection,
    Event,
    audio_format,
    out_of_order,
    read,
    route,
)
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.keys import CARTESIA_PATH
from cosyserve.gateway.speech.body import Name
from cosyserve.voices.store import DEFAULT

FORMATS = {
    "pcm_s16le": AudioFormat.PCM,
    "pcm_f32le": AudioFormat.F32,
    "pcm_mulaw": AudioFormat.MULAW,
    "pcm_alaw": AudioFormat.ALAW,
}
GOES_ON, COMPLETE = 206, 200


class VoiceSpecifier(BaseModel):
    mode: Literal["id"] = "id"
    id: Name = DEFAULT


def _specifier(voice: object) -> object:
    return {"id": voice} if isinstance(voice, str) else voice


class OutputFormat(BaseModel):
    container: Literal["raw"] = "raw"
    encoding: str = "pcm_s16le"
    sample_rate: int | None = None


class GenerationConfig(BaseModel):
    speed: float = 1.0


class GenerationRequest(BaseModel):
    """A piece of a context's text; the context is spoken as its first piece says."""

    context_id: Name
    transcript: str = ""
    goes_on: bool = Field(default=False, alias="continue")
    flush: bool = False
    cancel: bool = False
    add_timestamps: bool = False
    max_buffer_delay_ms: int | None = None  # 0: every piece is spoken as it comes
    model_id: str = ""
    voice: Annotated[VoiceSpecifier, BeforeValidator(_specifier)] = VoiceSpecifier()
    output_format: OutputFormat = Field(default_factory=OutputFormat)
    language: str | None = None
    generation_config: GenerationConfig = Field(default_factory=GenerationConfig)


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(tags=["speech"])
    about = "A WebSocket: contexts of text in pieces, as Cartesia has them."
    route(router, CARTESIA_PATH, CartesiaConnection, context, about)
    return router


class CartesiaConnection(DialectConnection):
    protocol = "CARTESIA"
    own_models = "sonic"
    text_path = ("transcript",)

    _context_id: str | None = None  # in the message that is being read

    async def take(self, message: dict[str, Any]) -> None:
        context_id = message.get("context_id")
        self._context_id = context_id if isinstance(context_id, str) else None
        piece = read(GenerationRequest, message)
        stream = self.streams.get(piece.context_id)
        if piece.cancel:
            if stream:
                stream.clear()
                stream.end()
                await self.settle(stream)
            return
        if stream is None:
            stream = self._open(piece)
        elif stream.ended:
            raise out_of_order("this context is closed: wait for 'done', or take another")
        stream.push(piece.transcript)
        if piece.flush or piece.max_buffer_delay_ms == 0:
            stream.flush()
        if not piece.goes_on:
            stream.end()
            await self.settle(stream)

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        match item:
            case bytes() if item:
                audio = base64.b64encode(item).decode()
                await self.say(_event("chunk", stream, data=audio, flush_id=stream.utterances))
            case WordsEvent():
                times = {"words": item.words, "start": item.start, "end": item.end}
                await self.say(_event("timestamps", stream, word_timestamps=times))
            case DoneEvent() if stream.flushed and not stream.last:
                number = stream.utterances
                await self.say(_event("flush_done", stream, flush_done=True, flush_id=number))
            case ErrorEvent():
                refusal = Refusal(item.status, item.error.message, item.error.code)
                await self.say(_error(refusal, stream.name))

    async def tell_over(self, stream: SpeechStream) -> None:
        if not stream.failed:
            done = {"done": True, "status_code": COMPLETE}
            await self.say(_event("done", stream) | done)

    async def refuse(self, refusal: Refusal) -> None:
        await self.say(_error(refusal, self._context_id))

    def _open(self, piece: GenerationRequest) -> SpeechStream:
        asked = piece.output_format
        fields = self.fields(
            piece.model_id,
            voice=piece.voice.id,
            response_format=audio_format(asked.encoding, FORMATS),
            sample_rate=asked.sample_rate,
            language=piece.language,
            speed=piece.generation_config.speed,
            timestamps="word" if piece.add_timestamps else None,
        )
        return self.open_stream(piece.context_id, fields)


def _event(kind: str, stream: SpeechStream, **fields: Any) -> Event:
    always = {"done": False, "status_code": GOES_ON, "context_id": stream.name}
    return {"type": kind, **always, **fields}


def _error(refusal: Refusal, context_id: str | None) -> Event:
    return {
        "type": "error",
        "done": True,
        "context_id": context_id,
        "status_code": refusal.status_code,
        "error_code": refusal.code,
        "title": refusal.envelope.error.type,
        "message": refusal.detail,
        "error": refusal.detail,
    }
