"""The WebSocket of vLLM-Omni and SGLang-Omni, which is at the address of our own: sessions, one
after the other."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import WebSocket
from pydantic import BaseModel

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent, StartedEvent
from cosyserve.gateway.connection.streams import SpeechStream
from cosyserve.gateway.connection.text import TextSplit
from cosyserve.gateway.dialects.dialect import DialectConnection, out_of_order, read
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.speech.body import SpeechFields

FIRST = "session.config"  # what tells their clients from ours


class InputMessage(BaseModel):
    type: Literal["session.config", "input.text", "input.done", "session.close"]
    text: str = ""


class OmniFields(SpeechFields):
    split_granularity: TextSplit | None = None


class OmniConnection(DialectConnection):
    """The fields of a session hold for those after it, too, until they are sent anew."""

    protocol = "OMNI"

    def __init__(
        self, websocket: WebSocket, context: ConnectionContext, first: dict[str, Any]
    ) -> None:
        """`first`: the message that was read from the connection, which is open."""
        super().__init__(websocket, context)
        self._unread: dict[str, Any] | None = first
        self._session: OmniFields | None = None
        self._bytes: int | None = None  # of the audio that was begun

    async def open(self) -> None:
        pass

    async def take_next(self) -> None:
        if self._unread is None:
            await super().take_next()
            return
        first, self._unread = self._unread, None
        await self.take(first)

    async def take(self, message: dict[str, Any]) -> None:
        asked = read(InputMessage, message)
        stream = self.streams.get("")
        if asked.type == "session.close":
            self.leave()
            if stream:
                stream.close()
                await self.settle(stream)
            return
        if stream and stream.ended:
            raise out_of_order("one session at a time: wait for 'session.done'")
        if asked.type == "session.config":
            if stream:
                raise out_of_order("this session has a text: send 'input.done' first")
            given = {name: value for name, value in message.items() if name != "type"}
            self._session = read(OmniFields, {"response_format": AudioFormat.WAV} | given)
            await self.say({"type": "session.configured"})
            return
        if self._session is None:
            raise out_of_order("send 'session.config' first")
        stream = stream or self.open_stream("", self._session, self._session.split_granularity)
        stream.push(asked.text)
        if asked.type == "input.done":
            stream.end()
            await self.settle(stream)

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        match item:
            case StartedEvent():
                assert self._session
                self._bytes = 0
                kind = {"format": self._session.response_format, "sample_rate": item.sample_rate}
                started = {"type": "audio.start", "sentence_index": 0, "sentence_text": ""}
                await self.say(started | kind)
            case bytes() if item:
                self._bytes = (self._bytes or 0) + len(item)
                await self.send_audio(item)
            case DoneEvent():
                await self._end_audio(failed=False)
            case ErrorEvent():
                await self.say({"type": "error", "message": item.error.message})
                await self._end_audio(failed=True)

    async def tell_over(self, stream: SpeechStream) -> None:
        await self.say({"type": "session.done", "total_sentences": stream.utterances})

    async def refuse(self, refusal: Refusal) -> None:
        await self.say({"type": "error", "message": refusal.detail})

    async def _end_audio(self, failed: bool) -> None:
        if self._bytes is None:
            return
        done = {"type": "audio.done", "sentence_index": 0, "total_bytes": self._bytes}
        self._bytes = None
        await self.say(done | {"error": failed})
