"""Route: a WebSocket that speaks OpenAI's Realtime API."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from typing import NoReturn

from fastapi import APIRouter, WebSocket

from cosyserve.gateway.connection.connection import Connection
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import ServerEvent
from cosyserve.gateway.connection.utterance import Cancelled
from cosyserve.gateway.connection.websocket import UPGRADE, Socket, upgrade_required
from cosyserve.gateway.errors import ErrorEnvelope, Refusal
from cosyserve.gateway.realtime.messages import (
    ConversationItem,
    ItemCreate,
    ResponseCancel,
    ResponseCreate,
    ResponseFields,
    SessionUpdate,
    read_event,
)
from cosyserve.gateway.realtime.response import Event, RealtimeResponse, error_event, event, new_id
from cosyserve.gateway.realtime.session import RealtimeSession
from cosyserve.gateway.speech.routes import check_text

PATH = "/v1/realtime"
SUBPROTOCOL = "realtime"


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.websocket(PATH)
    async def converse(websocket: WebSocket) -> None:
        await RealtimeConnection(websocket, context).serve()

    @router.get(PATH, status_code=426, response_model=ErrorEnvelope, responses=UPGRADE)
    async def upgrade() -> NoReturn:
        """A WebSocket: OpenAI's Realtime API, of which all is there that speaks a text."""
        raise upgrade_required()

    return router


class RealtimeConnection(Connection):
    """A session: what users write is spoken, word for word, one response at a time."""

    protocol = "REALTIME"

    def __init__(self, websocket: WebSocket, context: ConnectionContext) -> None:
        state = websocket.scope["state"]
        super().__init__(context, state["record"], state.get("key"))
        self._socket = Socket(websocket)
        self._asked_model = websocket.query_params.get("model", "")
        self._session = RealtimeSession(context.engine.model.name)
        self._id, self._conversation = new_id("sess"), new_id("conv")
        self._last_item: str | None = None
        self._written = ""  # what users wrote that no response has spoken yet
        self._response: RealtimeResponse | None = None  # the latest
        self._untold: deque[Event] = deque()  # of what it says
        self._event_id: str | None = None  # the client's, of the event that is being read

    async def open(self) -> None:
        if self._asked_model and not _is_realtime(self._asked_model):
            model = self._context.interpreter.engine(self._asked_model).model
            self._session = replace(self._session, model=model.name)
        await self._socket.accept(SUBPROTOCOL)
        await self._tell(event("session.created", session=self._session_body()))

    async def take_next(self) -> None:
        self._event_id = None
        value = await self._socket.receive()
        if isinstance(event_id := value.get("event_id"), str):
            self._event_id = event_id
        match read_event(value):
            case SessionUpdate() as update:
                self._session = self._session.updated(update.session)
                await self._tell(event("session.updated", session=self._session_body()))
            case ItemCreate() as created:
                await self._add(created.item)
            case ResponseCreate() as create:
                self._respond(create.response or ResponseFields())
            case ResponseCancel() as cancel:
                self._cancel(cancel.response_id)
        if not self._utterance:
            self.close_after(self._context.limits.seconds)

    async def send(self, item: ServerEvent | bytes) -> None:
        assert self._response
        self._untold.extend(self._response.tell(item))
        while self._untold:  # if it is stopped, its last item is told after the rest of this one
            await self._tell(self._untold[0])
            self._untold.popleft()

    async def refuse(self, refusal: Refusal) -> None:
        await self._tell(error_event(refusal.envelope.error, self._event_id))

    async def close(self, refusal: Refusal, going_away: bool) -> None:
        if not going_away:
            await self._tell(error_event(refusal.envelope.error, None))
        await self._socket.close(refusal.detail, going_away)

    async def _add(self, item: ConversationItem) -> None:
        written = f"{self._written} {item.said}".strip()
        if written:
            check_text(written, self._context.limits, "item.content")
        self._written = written
        body = item.model_dump(exclude={"id"}) | {
            "id": item.id or new_id("item"),
            "object": "realtime.item",
            "status": "completed",
        }
        previous, self._last_item = self._last_item, body["id"]
        for kind in ("added", "done"):
            told = event(f"conversation.item.{kind}", previous_item_id=previous, item=body)
            await self._tell(told)

    def _respond(self, fields: ResponseFields) -> None:
        if self._utterance:
            message = "one response at a time: wait for 'response.done', or send 'response.cancel'"
            raise Refusal(400, message, "conversation_already_has_active_response")
        if fields.input is None:
            text, param = self._written, "conversation"
        else:
            text, param = " ".join(item.said for item in fields.input).strip(), "response.input"
        check_text(text, self._context.limits, param)
        session = self._session.updated(fields)
        conversation = None if fields.conversation == "none" else self._conversation
        self._response = RealtimeResponse(
            session, text, conversation, fields.metadata, self._event_id
        )
        if fields.input is None:
            self._written = ""
        self.begin(session.fields, text, self.send)

    def _cancel(self, response_id: str | None) -> None:
        if not (self._utterance and self._response) or response_id not in (None, self._response.id):
            raise Refusal(400, "there is no such response to cancel", "response_cancel_not_active")
        self._utterance.stop(Cancelled())

    async def _tell(self, told: Event) -> None:
        await self._socket.send(json.dumps(told))

    def _session_body(self) -> dict[str, object]:
        return {
            "id": self._id,
            "object": "realtime.session",
            "type": "realtime",
            "model": self._session.model,
            "output_modalities": ["audio"],
            "audio": {"output": self._session.output},
            "instructions": self._session.style,
            "tools": [],
            "tool_choice": "none",
        }


def _is_realtime(model: str) -> bool:
    """Whether it is one of OpenAI's models with a Realtime API: they mean the loaded one."""
    return model.startswith("gpt-") and "realtime" in model
