"""uvicorn's HTTP protocol, with an end to how large a head may be and how long it may take, and
without what others may offer in it.

Nothing else bounds a head: what asks for a key or counts requests sees it when it is whole.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cosyserve.gateway.transport.offers import DecliningParser
from cosyserve.gateway.transport.refusal import refusal

HEAD_BYTES = 1 << 16  # of a head, and of what a chunked body has beside its data
HEAD_SECONDS = 20.0

TOO_LARGE = refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"the head of the request is larger than {HEAD_BYTES} bytes: send shorter headers",
)


class BoundedHTTPProtocol(HttpToolsProtocol):
    _bytes = 0  # since the last that belong to a body, whose size is limited elsewhere
    _deadline: TimerHandle | None = None  # of a head

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser: DecliningParser = DecliningParser(self)  # type: ignore[assignment]

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # refused, or a WebSocket's from now on
        if self._bytes > HEAD_BYTES:
            if not self._answering:
                self.transport.write(TOO_LARGE)
            self.transport.close()
        elif not self._answering:  # what came is no whole head
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes = 0
        if not self.parser.declines:
            super().on_message_complete()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._end_waiting)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = None

    def _end_waiting(self) -> None:
        self._deadline = None
        if self._answering:
            self._await_head()  # of the next request, while this one is answered
        else:
            self.transport.close()
