"""uvicorn's WebSocket protocol, without what a hostile client can pile up in it."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame


class BoundedProtocol(WebSocketsSansIOProtocol):
    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # a client that doesn't read gets no more answers

    def handle_cont(self, event: Frame) -> None:
        if event.data or event.fin:  # a message may have any number of empty frames
            super().handle_cont(event)
