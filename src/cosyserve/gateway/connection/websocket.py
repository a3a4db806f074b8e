"""A WebSocket whose client may leave at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from cosyserve.gateway.bodies import JSONBounds
from cosyserve.gateway.connection.surrogates import read_json
from cosyserve.gateway.errors import MAX_FAULT, ClientLeft, Refusal

NORMAL, GOING_AWAY, POLICY = 1000, 1001, 1008  # why it is closed

UPGRADE: dict[int | str, dict[str, object]] = {101: {"description": "The WebSocket is open."}}


class Socket:
    """Frames of a WebSocket; whatever shows that the client has left is ClientLeft."""

    def __init__(self, websocket: WebSocket, text_path: Sequence[str] = ()) -> None:
        """`text_path`: names that lead to pieces of a text, if there are any."""
        self._websocket = websocket
        self._text_path = text_path
        self.received = 0  # characters of the last frame

    async def accept(self, subprotocol: str = "") -> None:
        """Opens it; the subprotocol is chosen if the client offers it."""
        offered = self._websocket.scope.get("subprotocols", ())
        try:
            await self._websocket.accept(subprotocol if subprotocol in offered else None)
        except OSError as error:
            raise ClientLeft from error

    async def receive(self) -> dict[str, Any]:
        """The JSON object in the next frame."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ClientLeft
        text = message.get("text") or ""
        self.received = len(text)
        JSONBounds().take(text)
        try:
            value = read_json(text, self._text_path)
        except ValueError as error:
            fault = f"send a JSON object in a text frame: {error!s:.{MAX_FAULT}}"
            raise Refusal(400, fault, "invalid_json") from error
        if not isinstance(value, dict):
            raise Refusal(400, "send a JSON object in a text frame", "invalid_json")
        return value

    async def send(self, data: str | bytes) -> None:
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            raise ClientLeft
        try:
            if isinstance(data, bytes):
                await self._websocket.send_bytes(data)
            else:
                await self._websocket.send_text(data)
        except WebSocketDisconnect as error:
            raise ClientLeft from error

    async def close(self, reason: str, going_away: bool) -> None:
        await self._close(GOING_AWAY if going_away else POLICY, reason)

    async def finish(self) -> None:
        """Closes it because its client has all that it asked for."""
        await self._close(NORMAL, "")

    async def _close(self, code: int, reason: str) -> None:
        try:
            await self._websocket.close(code, reason)
        except WebSocketDisconnect as error:
            raise ClientLeft from error


def upgrade_required() -> Refusal:
    message = "this is a WebSocket: ask for it with 'Upgrade: websocket'"
    return Refusal(426, message, "upgrade_required", headers={"Upgrade": "websocket"})
