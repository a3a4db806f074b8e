"""Deepgram's WebSocket: one text after the other, in a voice that the address names."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent
from cosyserve.gateway.connection.streams import SpeechStream
from cosyserve.gateway.connection.utterance import ConnectionUtterance
from cosyserve.gateway.dialects.dialect import DialectConnection, audio_format, read, route
from cosyserve.gateway.errors import ErrorBody, Refusal
from cosyserve.version import __version__
from cosyserve.voices.store import DEFAULT

PATH = "/v1/speak"
FORMATS = {
    "linear16": AudioFormat.PCM,
    "mulaw": AudioFormat.MULAW,
    "alaw": AudioFormat.ALAW,
}


class ControlMessage(BaseModel):
    type: Literal["Speak", "Flush", "Clear", "Close"]
    text: str = ""


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(tags=["speech"])
    about = "A WebSocket: `Speak`, `Flush`, `Clear` and `Close`, as Deepgram has them."
    route(router, PATH, DeepgramConnection, context, about)
    return router


class DeepgramConnection(DialectConnection):
    protocol = "DEEPGRAM"

    def __init__(self, websocket: WebSocket, context: ConnectionContext) -> None:
        super().__init__(websocket, context)
        query = websocket.query_params
        self._fields = self.fields(
            voice=query.get("model", DEFAULT),
            response_format=audio_format(query.get("encoding", "linear16"), FORMATS),
            sample_rate=query.get("sample_rate"),
            speed=query.get("speed"),
        )
        self._clears = 0  # that were not answered yet
        self._answers = 0  # to `Flush` and `Clear`

    async def open(self) -> None:
        await super().open()
        model = self._context.engine.model
        await self.say(
            {
                "type": "Metadata",
                "request_id": self._record.request_id,
                "model_name": self._fields.voice,
                "model_version": __version__,
                "model_uuid": model.fingerprint,
            }
        )

    async def take(self, message: dict[str, Any]) -> None:
        command = read(ControlMessage, message)
        stream = self.streams.get("") or self.open_stream("", self._fields)
        match command.type:
            case "Speak":
                stream.push(command.text)
            case "Flush":
                if not stream.flush():
                    await self._flush_nothing(stream)
            case "Clear":
                stream.clear()
                if stream.speaking:
                    self._clears += 1
                else:
                    await self._answer("Cleared")
            case "Close":
                stream.end()
                self.leave()
                await self.settle(stream)

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        match item:
            case bytes() if item:
                await self.send_audio(item)
            case DoneEvent() if stream.flushed and item.finish_reason != "cancelled":
                await self._answer("Flushed")
            case ErrorEvent():
                await self._say_error(item.error)

    async def utterance_ended(self, utterance: ConnectionUtterance) -> None:
        clears, self._clears = self._clears, 0
        await super().utterance_ended(utterance)
        for _ in range(clears):
            await self._answer("Cleared")

    async def tell_over(self, stream: SpeechStream) -> None:
        pass  # the connection is closed

    async def refuse(self, refusal: Refusal) -> None:
        await self._say_error(refusal.envelope.error)

    async def _flush_nothing(self, stream: SpeechStream) -> None:
        if not stream.speaking:
            await self._answer("Flushed")
            return
        message = "nothing new is there to flush: its speech is on the way"
        await self.say({"type": "Warning", "description": message, "code": "NOTHING_TO_FLUSH"})

    async def _answer(self, kind: str) -> None:
        answer = {"type": kind, "sequence_id": self._answers}
        self._answers += 1
        await self.say(answer)

    async def _say_error(self, error: ErrorBody) -> None:
        told = {"type": "Error", "description": error.message, "code": error.code}
        await self.say(told | {"err_msg": error.message, "err_code": error.code})
