"""What the dialects share: JSON on a WebSocket, and a client that may ask for its end."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ValidationError

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.streams import SpeechStream, StreamsConnection
from cosyserve.gateway.connection.websocket import UPGRADE, Socket, upgrade_required
from cosyserve.gateway.errors import ErrorEnvelope, Refusal, fault_of
from cosyserve.gateway.speech.body import SpeechFields

NAME_IN_PATH = re.compile(r"{(\w+)}")
Event = dict[str, Any]
Message = TypeVar("Message", bound=BaseModel)


class DialectConnection(StreamsConnection):
    own_models = ""  # how the names of the service's models begin: they mean the loaded one
    text_path: Sequence[str] = ("text",)  # to the pieces in its messages, name by name

    def __init__(self, websocket: WebSocket, context: ConnectionContext) -> None:
        state = websocket.scope["state"]
        super().__init__(context, state["record"], state.get("key"))
        self._socket = Socket(websocket, self.text_path)
        self._leaving = False  # the client wants to hear the rest, and no more

    @abstractmethod
    async def take(self, message: dict[str, Any]) -> None:
        """Does what a message says."""

    async def open(self) -> None:
        await self._socket.accept()

    async def take_next(self) -> None:
        message = await self._socket.receive()
        if self._leaving:
            return
        await self.take(message)
        if not (self._speaking or self._leaving):
            self.close_after(self._context.limits.seconds)

    async def say(self, event: Event) -> None:
        await self._socket.send(json.dumps(event))

    async def send_audio(self, audio: bytes) -> None:
        await self._socket.send(audio)

    async def close(self, refusal: Refusal, going_away: bool) -> None:
        if self._leaving:
            await self._socket.finish()
            return
        if not going_away:
            await self.refuse(refusal)
        await self._socket.close(refusal.detail, going_away)

    def leave(self) -> None:
        """Closes the connection once all of its streams are over."""
        self._leaving = True
        if not self.streams:
            self.close_after(0)

    async def settle(self, stream: SpeechStream) -> None:
        await super().settle(stream)
        if self._leaving:
            self.leave()

    def fields(self, model: str = "", **fields: Any) -> SpeechFields:
        """How a stream is to be spoken, in our words."""
        if not model.startswith(self.own_models):
            fields["model"] = model
        return read(SpeechFields, fields)


def route(
    router: APIRouter,
    path: str,
    connection: Callable[[WebSocket, ConnectionContext], DialectConnection],
    context: ConnectionContext,
    about: str,
) -> None:
    """Adds a WebSocket to the router, and what is said of it in the API's description."""

    @router.websocket(path)
    async def converse(websocket: WebSocket) -> None:
        await connection(websocket, context).serve()

    async def upgrade() -> NoReturn:
        raise upgrade_required()

    parameters = [_path_parameter(name) for name in NAME_IN_PATH.findall(path)]
    router.get(
        path,
        status_code=426,
        response_model=ErrorEnvelope,
        responses=UPGRADE,
        description=about,
        openapi_extra={"parameters": parameters},
    )(upgrade)


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def read(kind: type[Message], value: dict[str, Any]) -> Message:
    """A message, or the names of the fields that are wrong; null is a field that was not sent."""
    try:
        return kind.model_validate(_without_null(value))
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"])) or None
        message = f"{param}: {fault_of(first)}" if param else fault_of(first)
        raise Refusal(400, message, "invalid_value", param=param) from error


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_null(item) for name, item in value.items() if item is not None}


def out_of_order(message: str) -> Refusal:
    return Refusal(400, message, "out_of_order")


def audio_format(name: str, known: dict[str, AudioFormat]) -> AudioFormat:
    """Our format by the service's name of it."""
    try:
        return known[name]
    except KeyError:
        listed = ", ".join(known)
        message = f"no audio format '{name:.80}'; choose one of {listed}"
        raise Refusal(400, message, "invalid_value", param="format") from None
