"""uvicorn's WebSocket protocol, without what a hostile client can pile up in it."""

from __future__ import annotations

from http import HTTPStatus

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from cosyserve.gateway.transport.refusal import refusal

UNREADABLE = refusal(
    HTTPStatus.BAD_REQUEST, "this is no WebSocket's handshake: send GET without a body"
)


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """`bound_first_message` in its scope's state says how large the first message may be."""

    def data_received(self, data: bytes) -> None:
        """The first data are the head, whole; one that can't be read would be kept for ever."""
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()) or UNREADABLE)
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["state"]["bound_first_message"] = self._bound_first_message

    def _bound_first_message(self, most: int) -> None:
        self.conn.max_message_size = min(most, self.config.ws_max_size)

    def send_receive_event_to_app(self) -> None:
        super().send_receive_event_to_app()
        self.conn.max_message_size = self.config.ws_max_size

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # a client that doesn't read gets no more answers

    def handle_cont(self, event: Frame) -> None:
        if event.data or event.fin:  # a message may have any number of empty frames
            super().handle_cont(event)
