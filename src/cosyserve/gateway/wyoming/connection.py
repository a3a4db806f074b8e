"""A connection of a Wyoming client: texts in, whole or piece by piece, and audio out."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Any

from pydantic import ValidationError
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Describe
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeTextFormat,
)

from cosyserve.audio import AudioFormat
from cosyserve.contracts import SAMPLE_RATE
from cosyserve.gateway.connection.connection import Connection
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent
from cosyserve.gateway.connection.text import TextBuffer
from cosyserve.gateway.connection.utterance import ConnectionUtterance
from cosyserve.gateway.errors import ClientLeft, Refusal, as_refusal
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.speech.routes import check_text
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.wyoming.info import describe
from cosyserve.gateway.wyoming.wire import read_event, text_of
from cosyserve.text.pronunciation.ssml import is_ssml
from cosyserve.voices.store import DEFAULT

PCM: dict[str, int] = {"rate": SAMPLE_RATE, "width": 2, "channels": 1}


class WyomingConnection(Connection):
    """Any error ends the connection: clients take nothing else for the end of an answer."""

    protocol = "WYOMING"
    share = 0.25  # no key is needed: those who have one must still find a place

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, context: ConnectionContext, record: Record
    ) -> None:
        super().__init__(context, record, key=None)
        self._reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()
        self._text: TextBuffer | None = None  # that comes in pieces
        self._audible = False  # audio of this utterance was sent
        self._discarding = False  # the rest of a text whose utterance has ended

    async def open(self) -> None:
        pass

    async def take_next(self) -> None:
        event = await read_event(self._reader, self._context.limits.input_characters)
        kind = event.type
        if Describe.is_type(kind):
            await self._write(await describe(self._context))
        elif Ping.is_type(kind):
            await self._write(Pong())
        elif SynthesizeStart.is_type(kind):
            limits = self._context.limits
            text = TextBuffer(limits.input_characters, limits.idle_seconds)
            self._start(event, text)
            self._text, self._discarding = text, False
        elif SynthesizeStop.is_type(kind):
            self._discarding = False
            if self._text:
                self._text.end()
        elif self._discarding:
            pass
        elif SynthesizeChunk.is_type(kind):
            self._push(event)
        elif Synthesize.is_type(kind) and self._text is None:  # else for servers that want it whole
            text_to_speak = text_of(event)
            check_text(text_to_speak, self._context.limits, "text")
            self._start(event, text_to_speak)

    async def send(self, item: ServerEvent | bytes) -> None:
        match item:
            case bytes() if item:
                if not self._audible:
                    self._audible = True
                    await self._write(AudioStart(**PCM))
                await self._write(AudioChunk(**PCM, audio=item))
            case DoneEvent():
                await self._write(AudioStop())
                if self._text:
                    await self._write(SynthesizeStopped())
            case ErrorEvent():
                await self._write(Error(item.error.message, item.error.code))
                self._writer.close()

    async def refuse(self, refusal: Refusal) -> None:
        await self._write(Error(refusal.detail, refusal.code))
        raise ClientLeft

    async def close(self, refusal: Refusal, going_away: bool) -> None:
        await self._write(Error(refusal.detail, refusal.code))

    async def utterance_ended(self, utterance: ConnectionUtterance) -> None:
        self._discarding = self._text is not None and not self._text.ended
        self._text, self._audible = None, False

    def _start(self, event: Event, text: str | TextBuffer) -> None:
        if self._utterance:
            message = "one text at a time: wait for the end of its audio"
            raise Refusal(400, message, "out_of_order")
        ssml = event.data.get("text_format") == SynthesizeTextFormat.SSML.value
        if ssml and isinstance(text, str) and not is_ssml(text):
            raise Refusal(400, "SSML begins with <speak>", "invalid_value")
        self.begin(self._fields(event.data.get("voice")), text, self.send)

    def _push(self, event: Event) -> None:
        if not (self._utterance and self._text):
            raise Refusal(400, "send 'synthesize-start' first", "out_of_order")
        try:
            self._text.push(text_of(event))
        except Refusal as refusal:
            self._utterance.stop(refusal)

    def _fields(self, voice: Any) -> SpeechFields:
        name = voice.get("name") if isinstance(voice, dict) else None
        try:
            return SpeechFields(
                model=self._context.engine.model.name,
                voice=DEFAULT if name is None else name,
                response_format=AudioFormat.PCM,
            )
        except ValidationError as error:
            raise as_refusal(error) from error

    async def _write(self, event: Eventable) -> None:
        if self._writer.is_closing():
            raise ClientLeft
        try:
            async with self._writing:
                await async_write_event(event.event(), self._writer)
        except OSError as error:
            raise ClientLeft from error
