"""Route: a WebSocket with text in and audio out, one utterance after the other.

The order of messages is kept here; `utterance` speaks.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from cosyserve.gateway.errors import ClientLeft, ErrorEnvelope, Refusal
from cosyserve.gateway.limits import shutting_down
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.websocket.connections import Connections
from cosyserve.gateway.websocket.messages import (
    CancelMessage,
    EndMessage,
    ErrorEvent,
    ServerEvent,
    StartMessage,
    TextMessage,
    read_message,
)
from cosyserve.gateway.websocket.text import TextBuffer
from cosyserve.gateway.websocket.utterance import (
    LAST_EVENT_SECONDS,
    Cancelled,
    UtteranceContext,
    WebSocketUtterance,
)

PATH = "/v1/audio/speech/stream"
SUBPROTOCOL = "cosyserve"
GOING_AWAY, POLICY = 1001, 1008  # why a WebSocket is closed


def routes(context: UtteranceContext, connections: Connections, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.websocket(PATH)
    async def converse(websocket: WebSocket) -> None:
        connection = Connection(websocket, context, connections, metrics)
        with connections.register(connection), metrics.connections.track_inprogress():
            await connection.serve()

    @router.get(PATH, status_code=426, response_model=ErrorEnvelope, responses=UPGRADE)
    async def upgrade() -> NoReturn:
        """A WebSocket: `start`, `text` and `end` go in, audio comes out while text arrives."""
        message = "this is a WebSocket: ask for it with 'Upgrade: websocket'"
        raise Refusal(426, message, "upgrade_required", headers={"Upgrade": "websocket"})

    return router


UPGRADE: dict[int | str, dict[str, object]] = {101: {"description": "The WebSocket is open."}}


class Connection:
    """One WebSocket, read at all times, even while it speaks: a client may cancel or leave.

    It has two tasks at most: one reads, the other speaks; neither outlives the other.
    """

    def __init__(
        self,
        websocket: WebSocket,
        context: UtteranceContext,
        connections: Connections,
        metrics: Metrics,
    ) -> None:
        self._websocket = websocket
        self._context = context
        self._connections = connections
        self._metrics = metrics
        self._record: Record = websocket.state.record
        self._utterances = 0
        self._utterance: WebSocketUtterance | None = None  # until its last event is sent
        self._text = self._new_text()
        self._discarding = False  # the rest of a text whose utterance has ended
        self._idle_timeout: asyncio.Timeout | None = None  # of a client that asks for nothing

    async def serve(self) -> None:
        offered = self._websocket.scope.get("subprotocols", ())
        try:
            await self._websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        except OSError as error:
            raise ClientLeft from error
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._listen(tasks)
        except* ClientLeft:
            pass

    def close_when_idle(self) -> None:
        if self._utterance is None:
            self._close_after(0)

    def abort(self) -> None:
        if self._utterance:
            self._utterance.stop(shutting_down())

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        try:
            async with asyncio.timeout(None) as self._idle_timeout:
                self._close_after(self._context.limits.idle_seconds)
                while True:
                    await self._take(await self._receive(), tasks)
                    await asyncio.sleep(0)  # a flood of messages must not hold up the others
        except ClientLeft:
            pass  # the utterance has time to tidy up
        except TimeoutError:
            if not (self._idle_timeout and self._idle_timeout.expired()):
                raise
            await self._close()
        finally:
            self._idle_timeout = None
            if self._utterance:
                self._utterance.stop(ClientLeft())

    def _close_after(self, seconds: float) -> None:
        """Closes the connection unless the client asks for something within these seconds."""
        if self._idle_timeout and not self._idle_timeout.expired():
            wait = 0 if self._connections.closed else seconds
            self._idle_timeout.reschedule(asyncio.get_running_loop().time() + wait)

    async def _take(self, text: str | None, tasks: asyncio.TaskGroup) -> None:
        try:
            message = read_message(text)
            if isinstance(message, StartMessage):
                self._begin(message, tasks)
            else:
                self._follow(message)
        except Refusal as refusal:
            self._discarding = self._utterance is None
            self._metrics.count_refusal(refusal.code)
            await self._send(ErrorEvent.of(refusal))

    def _begin(self, start: StartMessage, tasks: asyncio.TaskGroup) -> None:
        if self._utterance:
            _out_of_order(
                "one utterance at a time: wait for 'done', or send 'cancel' and wait for it"
            )
        if self._idle_timeout and not self._idle_timeout.expired():
            self._idle_timeout.reschedule(None)
        self._utterances += 1
        request_id = f"{self._record.request_id}.{self._utterances}"
        self._text, self._discarding = self._new_text(), False
        record = Record(request_id, "WEBSOCKET", PATH, traceparent=self._record.traceparent)
        key = self._websocket.scope["state"].get("key")
        self._utterance = WebSocketUtterance(self._context, start, self._text, record, key)
        tasks.create_task(self._speak(self._utterance))

    async def _speak(self, utterance: WebSocketUtterance) -> None:
        try:
            await utterance.run(self._send)
        finally:
            self._utterance = None
            self._discarding = not self._text.ended
            self._close_after(self._context.limits.seconds)

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

    async def _receive(self) -> str | None:
        """The text of the next frame; None: the frame was binary."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ClientLeft
        text: str | None = message.get("text")
        return text

    async def _send(self, item: ServerEvent | bytes) -> None:
        """Sends an item as a whole, or not at all."""
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            raise ClientLeft
        try:
            if isinstance(item, bytes):
                await self._websocket.send_bytes(item)
            else:
                await self._websocket.send_text(item.model_dump_json())
        except WebSocketDisconnect as error:
            raise ClientLeft from error

    async def _close(self) -> None:
        """Closes the connection of a client that has been idle for too long."""
        going = self._connections.closed
        late = Refusal(408, "no 'start' came in time: connect again when you have one", "timeout")
        refusal = shutting_down() if going else late
        try:
            async with asyncio.timeout(LAST_EVENT_SECONDS):
                if not going:
                    await self._send(ErrorEvent.of(refusal))
                await self._websocket.close(GOING_AWAY if going else POLICY, refusal.detail)
        except (TimeoutError, WebSocketDisconnect) as error:
            raise ClientLeft from error


def _out_of_order(message: str) -> NoReturn:
    raise Refusal(400, message, "out_of_order", param="type")
