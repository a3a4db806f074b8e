"""Route: a WebSocket with text in and audio out, one utterance after the other.

Knows the order of messages; what an utterance is made of is the business of `utterance`.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from cosyserve.gateway.errors import ClientLeft, ErrorEnvelope, Refusal
from cosyserve.gateway.limits import shutting_down
from cosyserve.gateway.metrics import Metrics
from cosyserve.gateway.record import Record
from cosyserve.gateway.websocket.connections import Connections
from cosyserve.gateway.websocket.messages import (
    Cancel,
    End,
    Failed,
    ServerEvent,
    Start,
    Text,
    read_message,
)
from cosyserve.gateway.websocket.text import ArrivingText
from cosyserve.gateway.websocket.utterance import FAREWELL_SECONDS, Cancelled, Stage, Utterance

PATH = "/v1/audio/speech/stream"
SUBPROTOCOL = "cosyserve"
GOING_AWAY, POLICY = 1001, 1008  # why a WebSocket is closed


def routes(stage: Stage, connections: Connections, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.websocket(PATH)
    async def converse(websocket: WebSocket) -> None:
        connection = Connection(websocket, stage, connections, metrics)
        with connections.place(connection), metrics.connections.track_inprogress():
            await connection.serve()

    @router.get(PATH, status_code=426, response_model=ErrorEnvelope, responses=UPGRADE)
    async def upgrade() -> NoReturn:
        """A WebSocket: `start`, `text` and `end` go in, audio comes out while text arrives."""
        message = "this is a WebSocket: ask for it with 'Upgrade: websocket'"
        raise Refusal(426, message, "upgrade_required", headers={"Upgrade": "websocket"})

    return router


UPGRADE: dict[int | str, dict[str, object]] = {101: {"description": "The WebSocket is open."}}


class Connection:
    """Listens at all times, even while it speaks: a client may cancel or leave.

    Two tasks at most: this one reads, another one speaks; neither outlives the other.
    """

    def __init__(
        self, websocket: WebSocket, stage: Stage, connections: Connections, metrics: Metrics
    ) -> None:
        self._websocket, self._stage = websocket, stage
        self._connections, self._metrics = connections, metrics
        self._record: Record = websocket.state.record
        self._utterances = 0
        self._utterance: Utterance | None = None  # until its last event is sent
        self._text = self._new_text()
        self._dropping = False  # what is left of a text that nobody will hear
        self._patience: asyncio.Timeout | None = None  # with a client that asks for nothing

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

    def leave(self) -> None:
        if self._utterance is None:
            self._rest(0)

    def cut(self) -> None:
        if self._utterance:
            self._utterance.stop(shutting_down())

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        try:
            async with asyncio.timeout(None) as self._patience:
                self._rest(self._stage.limits.idle_seconds)
                while True:
                    await self._take(await self._receive(), tasks)
                    await asyncio.sleep(0)  # a flood of messages must not hold up the others
        except ClientLeft:
            pass  # the utterance has time to tidy up
        except TimeoutError:
            if not (self._patience and self._patience.expired()):
                raise
            await self._close()
        finally:
            self._patience = None
            if self._utterance:
                self._utterance.stop(ClientLeft())

    def _rest(self, seconds: float) -> None:
        """So long may the client ask for nothing."""
        if self._patience and not self._patience.expired():
            wait = 0 if self._connections.closed else seconds
            self._patience.reschedule(asyncio.get_running_loop().time() + wait)

    async def _take(self, text: str | None, tasks: asyncio.TaskGroup) -> None:
        try:
            message = read_message(text)
            if isinstance(message, Start):
                self._begin(message, tasks)
            else:
                self._follow(message)
        except Refusal as refused:
            self._dropping = self._utterance is None
            self._metrics.refused(refused.code)
            await self._send(Failed.of(refused))

    def _begin(self, start: Start, tasks: asyncio.TaskGroup) -> None:
        if self._utterance:
            _out_of_order(
                "one utterance at a time: wait for 'done', or send 'cancel' and wait for it"
            )
        if self._patience and not self._patience.expired():
            self._patience.reschedule(None)
        self._utterances += 1
        request_id = f"{self._record.request_id}.{self._utterances}"
        self._text, self._dropping = self._new_text(), False
        record = Record(request_id, "WEBSOCKET", PATH)
        key = self._websocket.scope["state"].get("key")
        self._utterance = Utterance(self._stage, start, self._text, record, key)
        tasks.create_task(self._speak(self._utterance))

    async def _speak(self, utterance: Utterance) -> None:
        try:
            await utterance.run(self._send)
        finally:
            self._utterance = None
            self._dropping = not self._text.ended
            self._rest(self._stage.limits.seconds)

    def _follow(self, message: Text | End | Cancel) -> None:
        match message:
            case Cancel():
                if self._utterance:
                    self._utterance.stop(Cancelled())
                self._dropping = False  # a cancel that comes too late is no mistake
            case End() if self._dropping:
                self._dropping = False
            case _ if self._dropping:
                pass
            case _ if self._utterance is None:
                _out_of_order(f"'{message.type}' belongs to an utterance: send 'start' first")
            case _ if self._text.ended:
                _out_of_order(f"'{message.type}' after 'end': wait for 'done', then send 'start'")
            case End():
                self._text.end()
            case Text():
                self._push(message.text)

    def _push(self, piece: str) -> None:
        try:
            self._text.push(piece)
        except Refusal as refused:
            assert self._utterance
            self._utterance.stop(refused)

    def _new_text(self) -> ArrivingText:
        limits = self._stage.limits
        return ArrivingText(limits.input_characters, limits.idle_seconds)

    async def _receive(self) -> str | None:
        """The text of a frame; None: the frame was binary."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ClientLeft
        text: str | None = message.get("text")
        return text

    async def _send(self, item: ServerEvent | bytes) -> None:
        """An item is sent as a whole, or not at all: it may be waited for, never cut."""
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
        """Patience is over."""
        going = self._connections.closed
        late = Refusal(408, "no 'start' came in time: connect again when you have one", "timeout")
        refused = shutting_down() if going else late
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                if not going:
                    await self._send(Failed.of(refused))
                await self._websocket.close(GOING_AWAY if going else POLICY, refused.detail)
        except (TimeoutError, WebSocketDisconnect) as error:
            raise ClientLeft from error


def _out_of_order(message: str) -> NoReturn:
    raise Refusal(400, message, "out_of_order", param="type")
