"""Route: a WebSocket with text in and audio out, one utterance after the other."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, NoReturn

from fastapi import APIRouter, WebSocket

from cosyserve.gateway.connection.connection import Connection
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import ErrorEvent, ServerEvent
from cosyserve.gateway.connection.text import TextBuffer
from cosyserve.gateway.connection.utterance import Cancelled, ConnectionUtterance
from cosyserve.gateway.connection.websocket import UPGRADE, Socket, upgrade_required
from cosyserve.gateway.errors import ClientLeft, ErrorEnvelope, Refusal
from cosyserve.gateway.websocket.messages import (
    CancelMessage,
    EndMessage,
    StartMessage,
    TextMessage,
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


class WebSocketConnection(Connection):
    """Keeps the order of our own messages: `start`, then `text`, then `end` or `cancel`."""

    protocol = "WEBSOCKET"

    def __init__(
        self, websocket: WebSocket, context: ConnectionContext, others: Container[str]
    ) -> None:
        """`others`: types of messages with which other protocols begin."""
        state = websocket.scope["state"]
        super().__init__(context, state["record"], state.get("key"))
        self._socket = Socket(websocket)
        self._text = self._new_text()
        self._discarding = False  # the rest of a text whose utterance has ended
        self._others = others
        self.message_of_another: dict[str, Any] | None = None  # protocol, which goes on from here

    async def open(self) -> None:
        await self._socket.accept(SUBPROTOCOL)

    async def take_next(self) -> None:
        value = await self._socket.receive()
        if not self._utterances and value.get("type") in self._others:
            self.message_of_another = value
            raise ClientLeft  # to somebody else
        message = read_message(value)
        if isinstance(message, StartMessage):
            self._start(message)
        else:
            self._follow(message)

    async def send(self, item: ServerEvent | bytes) -> None:
        await self._socket.send(item if isinstance(item, bytes) else item.model_dump_json())

    async def refuse(self, refusal: Refusal) -> None:
        self._discarding = self._utterance is None
        await self.send(ErrorEvent.of(refusal))

    async def close(self, refusal: Refusal, going_away: bool) -> None:
        if not going_away:
            await self.send(ErrorEvent.of(refusal))
        await self._socket.close(refusal.detail, going_away)

    async def utterance_ended(self, utterance: ConnectionUtterance) -> None:
        self._discarding = not self._text.ended

    def _start(self, start: StartMessage) -> None:
        if self._utterance:
            _out_of_order(
                "one utterance at a time: wait for 'done', or send 'cancel' and wait for it"
            )
        self._text, self._discarding = self._new_text(), False
        self.begin(start, self._text, self.send)

    def _follow(self, message: TextMessage | EndMessage | CancelMessage) -> None:
        match message:
            case CancelMessage():
                if self._utterance:
                    self._utterance.stop(Cancelled())
                self._discarding = False  # a cancel that comes too late is no mistake
            case EndMessage() if self._discarding:
                self._discarding = False
            case _ if self._discarding:
                pass
            case _ if self._utterance is None:
                _out_of_order(f"'{message.type}' belongs to an utterance: send 'start' first")
            case _ if self._text.ended:
                _out_of_order(f"'{message.type}' after 'end': wait for 'done', then send 'start'")
            case EndMessage():
                self._text.end()
            case TextMessage():
                self._push(message.text)

    def _push(self, piece: str) -> None:
        try:
            self._text.push(piece)
        except Refusal as refusal:
            assert self._utterance
            self._utterance.stop(refusal)

    def _new_text(self) -> TextBuffer:
        limits = self._context.limits
        return TextBuffer(limits.input_characters, limits.idle_seconds)


def _out_of_order(message: str) -> NoReturn:
    raise Refusal(400, message, "out_of_order", param="type")
