"""ElevenLabs' two WebSockets: one stream of text, or several contexts."""

from __future__ import annotations

import base64
from enum import Enum, auto
from itertools import pairwise
from typing import Any

import numpy as np
from fastapi import APIRouter, WebSocket
from pydantic import AliasChoices, BaseModel, Field

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import ErrorEvent, ServerEvent, WordsEvent
from cosyserve.gateway.connection.streams import SpeechStream
from cosyserve.gateway.connection.websocket import POLICY
from cosyserve.gateway.dialects.dialect import (
    DialectConnection,
    audio_format,
    out_of_order,
    read,
    route,
)
from cosyserve.gateway.errors import ErrorBody, Refusal, invalid_value
from cosyserve.gateway.keys import bearer_key
from cosyserve.gateway.speech.body import Name, SpeechFields

ONE = "/v1/text-to-speech/{voice}/stream-input"
SEVERAL = "/v1/text-to-speech/{voice}/multi-stream-input"
FORMATS = {
    "mp3": AudioFormat.MP3,
    "pcm": AudioFormat.PCM,
    "ulaw": AudioFormat.MULAW,
    "alaw": AudioFormat.ALAW,
    "opus": AudioFormat.OPUS,
    "wav": AudioFormat.WAV,
}
DEFAULT_FORMAT = "mp3_44100_128"
FIRST_MESSAGE_BYTES = 1 << 16  # of a client who has not shown a key yet


class Alignment(Enum):
    """From where the times in a message count. As with the service, they begin anew in each: where
    those of the last one have ended. LiveKit, whose address says `sync_alignment=true`, takes them
    for those of the whole context; Pipecat, whose address doesn't, adds them up."""

    OFF = auto()
    ANEW = auto()
    FROM_START = auto()


ALIGNMENTS = {"false": Alignment.OFF, "true": Alignment.FROM_START}


class VoiceSettings(BaseModel):
    """What else there is describes voices that a model here does not have."""

    speed: float = 1.0


class SendText(BaseModel):
    text: str | None = None
    context_id: Name | None = None
    flush: bool = False
    close_context: bool = False
    close_socket: bool = False
    voice_settings: VoiceSettings = Field(default_factory=VoiceSettings)
    key: str | None = Field(default=None, validation_alias=AliasChoices("xi_api_key", "xi-api-key"))
    authorization: str = ""


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(tags=["speech"])
    about = "A WebSocket: pieces of a text as ElevenLabs takes them, in one stream"
    route(router, ONE, OneStream, context, f"{about}.")
    route(router, SEVERAL, Contexts, context, f"{about} for each `context_id`.")
    return router


class ElevenLabsConnection(DialectConnection):
    protocol = "ELEVENLABS"
    own_models = "eleven_"

    def __init__(self, websocket: WebSocket, context: ConnectionContext) -> None:
        super().__init__(websocket, context)
        self._voice: str = websocket.path_params["voice"]
        self._query = websocket.query_params
        self._alignment = ALIGNMENTS.get(self._query.get("sync_alignment", ""), Alignment.ANEW)
        self._key_ring = websocket.scope["state"].get("key_ring")
        if self._key_ring:
            self.share = 0.25  # others, who have shown their keys, must find a place
            websocket.scope["state"]["bound_first_message"](FIRST_MESSAGE_BYTES)
        self._context_id: str | None = None  # in the message that is being read
        self._aligned: dict[str, float] = {}  # seconds of a stream that its next times count from

    async def open(self) -> None:
        self._new_fields(VoiceSettings())  # refuses what can't be before the connection is there
        await super().open()

    async def take(self, message: dict[str, Any]) -> None:
        self._context_id = None
        read_message = read(SendText, message)
        if self._key_ring:
            key = read_message.key
            sent = key.encode() if key is not None else bearer_key(read_message.authorization)
            self._key = self._record.client = self._key_ring.name(sent)
            self._key_ring = None
        self._context_id = read_message.context_id
        await self.take_text(read_message)

    async def take_text(self, message: SendText) -> None:
        raise NotImplementedError

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        match item:
            case bytes() if item:
                audio = base64.b64encode(item).decode()
                untold = {"isFinal": None, "alignment": None, "normalizedAlignment": None}
                await self.say({"audio": audio} | untold | self._named(stream.name))
            case WordsEvent():
                times = _alignment(item, since=self._aligned.get(stream.name, 0.0))
                if self._alignment is not Alignment.FROM_START:
                    self._aligned[stream.name] = item.end[-1]
                aligned = {"alignment": times, "normalizedAlignment": times}
                told = {"audio": None, "isFinal": None} | aligned
                await self.say(told | self._named(stream.name))
            case ErrorEvent():
                await self._say_error(item.error, stream.name)

    async def refuse(self, refusal: Refusal) -> None:
        await self._say_error(refusal.envelope.error, self._context_id or "")
        if self._key_ring:
            await self._socket.close(refusal.detail, going_away=False)

    async def tell_over(self, stream: SpeechStream) -> None:
        self._aligned.pop(stream.name, None)
        if not stream.failed:
            await self.say({"audio": None, "isFinal": True} | self._named(stream.name))

    def _named(self, name: str) -> dict[str, str]:
        return {"contextId": name} if name else {}

    async def _say_error(self, error: ErrorBody, name: str) -> None:
        told = {"message": error.message, "error": error.code, "code": POLICY}
        await self.say(told | self._named(name))

    def _new_fields(self, settings: VoiceSettings) -> SpeechFields:
        kind, _, rate = self._query.get("output_format", DEFAULT_FORMAT).partition("_")
        sample_rate = rate.partition("_")[0]
        if rate and not sample_rate.isdecimal():
            raise invalid_value("name a sample rate, as in 'pcm_24000'", ["output_format"])
        return self.fields(
            self._query.get("model_id", ""),
            voice=self._voice,
            response_format=audio_format(kind, FORMATS),
            sample_rate=sample_rate or None,
            language=self._query.get("language_code"),
            speed=settings.speed,
            timestamps=None if self._alignment is Alignment.OFF else "word",
        )


def _alignment(words: WordsEvent, since: float) -> dict[str, list[Any]]:
    """Every character in its share of its word, the blank behind it in the gap to the next word;
    times count from the second `since` on."""
    characters: list[str] = []
    places: list[float] = []  # milliseconds at which characters begin, and the last one ends
    for word, start, end in zip(words.words, words.start, words.end, strict=True):
        shares = np.linspace(start, end, len(word) + 1)
        characters += [*word, " "]
        places += shares.tolist()
    edges = [max(0, round(1000 * (place - since))) for place in [*places, words.end[-1]]]
    starts = edges[:-1]
    durations = [end - start for start, end in pairwise(edges)]
    return {"chars": characters, "charStartTimesMs": starts, "charDurationsMs": durations}


class OneStream(ElevenLabsConnection):
    """An empty text ends it, and with it the connection."""

    path = ONE

    async def take_text(self, message: SendText) -> None:
        stream = self.streams.get("")
        if stream is None:
            stream = self.open_stream("", self._new_fields(message.voice_settings))
        stream.push(message.text or "")
        if message.flush:
            stream.flush()
        if message.text == "" or message.close_socket:
            stream.end()
            await self.settle(stream)
            self.leave()


class Contexts(ElevenLabsConnection):
    """An empty text keeps a context alive; the one without an id is a context, too."""

    path = SEVERAL

    async def take_text(self, message: SendText) -> None:
        if message.close_socket:
            for closed in tuple(self.streams.values()):
                closed.close()
                await self.settle(closed)
            self.leave()
            return
        name = message.context_id or ""
        stream = self.streams.get(name)
        if message.close_context:
            if stream:
                stream.close()
                await self.settle(stream)
            return
        if stream is None:
            if not message.text:
                if message.flush:
                    raise out_of_order(f"there is no context '{name}' to flush")
                return
            stream = self.open_stream(name, self._new_fields(message.voice_settings))
        if stream.ended and message.text:
            raise out_of_order(f"context '{name}' is closed: wait for 'isFinal', or take another")
        stream.push(message.text or "")
        if message.flush:
            stream.flush()
