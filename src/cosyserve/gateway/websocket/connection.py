"""Route: a WebSocket with text in and audio out, in one context or in several."""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Mapping
from typing import Any, NoReturn

from fastapi import APIRouter, WebSocket
from pydantic_core import to_json

from cosyserve.gateway.connection.connection import Connection
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import (
    DoneEvent,
    ErrorEvent,
    ServerEvent,
    StartedEvent,
    WordsEvent,
)
from cosyserve.gateway.connection.streams import MAX_STREAMS, SpeechStream, StreamsConnection
from cosyserve.gateway.connection.text import nothing_to_say
from cosyserve.gateway.connection.websocket import UPGRADE, Socket, upgrade_required
from cosyserve.gateway.errors import ClientLeft, ErrorEnvelope, Refusal
from cosyserve.gateway.websocket.messages import (
    CancelMessage,
    EndMessage,
    FlushMessage,
    FollowingMessage,
    KeepAliveMessage,
    StartMessage,
    TextMessage,
    context_of,
    read_message,
)

PATH = "/v1/audio/speech/stream"
SUBPROTOCOL = "cosyserve"


Other = Callable[[WebSocket, ConnectionContext, dict[str, Any]], Connection]


def routes(context: ConnectionContext, others: Mapping[str, Other]) -> APIRouter:
    """`others`: protocols at the same address, by the type of their first message."""
    router = APIRouter(tags=["speech"])

    @router.websocket(PATH)
    async def converse(websocket: WebSocket) -> None:
        connection = WebSocketConnection(websocket, context, others)
        await connection.serve()
        if message := connection.message_of_another:
            await others[message["type"]](websocket, context, message).serve()

    @router.get(PATH, status_code=426, response_model=ErrorEnvelope, responses=UPGRADE)
    async def upgrade() -> NoReturn:
        """A WebSocket: `start`, `text` and `end` go in, audio comes out while text arrives."""
        raise upgrade_required()

    return router


class WebSocketConnection(StreamsConnection):
    """Keeps the order of our own messages in every context: `start`, then `text` and `flush`, then
    `end` or `cancel`. The context without an id is one of them."""

    protocol = "WEBSOCKET"

    def __init__(
        self, websocket: WebSocket, context: ConnectionContext, others: Container[str]
    ) -> None:
        """`others`: types of messages with which other protocols begin."""
        state = websocket.scope["state"]
        super().__init__(context, state["record"], state.get("key"))
        self._socket = Socket(websocket, text_path=("text",))
        self._reading = ""  # the context of the message that is being read
        self._dropping: dict[str, None] = {}  # contexts that are over, but their texts go on
        self._sizes: dict[str, int] = {}  # of the messages that started contexts
        self._request_ids: dict[str, str] = {}  # of the utterances that are being spoken
        self._others = others
        self.message_of_another: dict[str, Any] | None = None  # protocol, which goes on from here

    async def open(self) -> None:
        await self._socket.accept(SUBPROTOCOL)

    async def take_next(self) -> None:
        self._reading = ""
        value = await self._socket.receive()
        kind = value.get("type")
        if not self._utterances and isinstance(kind, str) and kind in self._others:
            self.message_of_another = value
            raise ClientLeft  # to somebody else
        self._reading = context_of(value)
        match read_message(value):
            case KeepAliveMessage():
                self._keep_alive()
            case StartMessage() as start:
                self._start(start)
            case message:
                await self._follow(message)

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        match item:
            case bytes():
                await self._send_audio(stream, item)
            case StartedEvent():
                self._request_ids[stream.name] = item.request_id
                if stream.utterances == 1:
                    await self._say(item.model_dump(), stream.name)
            case WordsEvent():
                await self._say(item.model_dump(), stream.name)
            case DoneEvent():
                await self._tell_done(stream, item)
            case ErrorEvent():
                await self._say(item.model_dump(), stream.name)
                self._forget(stream)

    async def tell_over(self, stream: SpeechStream) -> None:
        """Of one that had been flushed, and spoken, before it was ended."""
        assert stream.done
        await self._say(stream.done.model_dump(), stream.name)

    async def refuse(self, refusal: Refusal) -> None:
        if self._reading not in self.streams:
            self._drop(self._reading)
        await self._say(ErrorEvent.of(refusal).model_dump(), self._reading)

    async def close(self, refusal: Refusal, going_away: bool) -> None:
        if not going_away:
            await self._say(ErrorEvent.of(refusal).model_dump(), "")
        await self._socket.close(refusal.detail, going_away)

    def _start(self, start: StartMessage) -> None:
        if self._reading in self.streams:
            _out_of_order(
                "one utterance at a time: wait for 'done', or send 'cancel' and wait for it"
            )
        self._check_size()
        stream = self.open_stream(self._reading, start, start.split)
        self._dropping.pop(stream.name, None)
        stream.start()

    def _check_size(self) -> None:
        """What contexts were started with is kept for as long as they are open."""
        sizes = {name: size for name, size in self._sizes.items() if name in self.streams}
        sizes[self._reading] = self._socket.received
        if sum(sizes.values()) > (most := self._context.limits.body_bytes):
            message = f"the recordings of the open contexts are larger than {most} bytes: end some"
            raise Refusal(413, message, "body_too_large")
        self._sizes = sizes

    async def _follow(self, message: FollowingMessage) -> None:
        stream = self.streams.get(self._reading)
        if stream is None:
            self._follow_nothing(message)
            return
        match message:
            case CancelMessage():
                if not stream.ended:
                    self._drop(stream.name)
                stream.clear()
                stream.end()
                await self.settle(stream)
            case _ if stream.ended:
                _out_of_order(f"'{message.type}' after 'end': wait for 'done', then send 'start'")
            case TextMessage():
                stream.push(message.text)
            case FlushMessage():
                stream.flush()
            case EndMessage():
                if stream.empty:
                    stream.fail(nothing_to_say())
                stream.end()
                await self.settle(stream)

    def _follow_nothing(self, message: FollowingMessage) -> None:
        match message:
            case CancelMessage():
                self._dropping.pop(self._reading, None)  # too late, which is no mistake
            case _ if self._reading not in self._dropping:
                _out_of_order(f"'{message.type}' belongs to an utterance: send 'start' first")
            case EndMessage():
                del self._dropping[self._reading]

    def _keep_alive(self) -> None:
        for stream in self.streams.values():
            stream.keep_alive()
        if not self._speaking:
            limits = self._context.limits
            self.close_after(limits.seconds if self._utterances else limits.idle_seconds)

    async def _tell_done(self, stream: SpeechStream, done: DoneEvent) -> None:
        told = done.model_dump()
        if stream.flushed_by_client and done.finish_reason != "cancelled":
            await self._say(told | {"type": "flushed"}, stream.name)
            if not stream.last:
                return
        await self._say(told, stream.name)
        self._forget(stream)

    async def _send_audio(self, stream: SpeechStream, audio: bytes) -> None:
        assert isinstance(stream.fields, StartMessage)
        if stream.fields.audio == "base64":
            request_id = self._request_ids[stream.name]
            data = base64.b64encode(audio).decode()
            await self._say({"type": "audio", "request_id": request_id, "audio": data}, stream.name)
        else:
            await self._socket.send(_prefix(stream.name) + audio)

    async def _say(self, event: dict[str, Any], context: str) -> None:
        if context:
            event = event | {"context": context}
        await self._socket.send(to_json(event).decode())

    def _forget(self, stream: SpeechStream) -> None:
        """A context is over that the client was told the end of."""
        if self.streams.get(stream.name) is stream:
            del self.streams[stream.name]
            if not stream.ended:
                self._drop(stream.name)
        self._request_ids.pop(stream.name, None)

    def _drop(self, context: str) -> None:
        """What still comes of the context's text is no mistake, up to its end."""
        self._dropping[context] = None
        if len(self._dropping) > MAX_STREAMS:
            del self._dropping[next(iter(self._dropping))]


def _prefix(context: str) -> bytes:
    """What tells whose a frame of audio is: the length of the id, and the id."""
    return bytes([len(context)]) + context.encode() if context else b""


def _out_of_order(message: str) -> NoReturn:
    raise Refusal(400, message, "out_of_order", param="type")
