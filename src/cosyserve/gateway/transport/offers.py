"""Offers of another protocol, which a server may decline by taking no notice of them.

Every JDK and `curl --http2` offer `h2c` with a request. httptools' parser ends behind such a head
and takes the body for the other protocol's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = ("on_message_begin", "on_url", "on_header", "on_headers_complete")
BODY = ("on_body", "on_message_complete")


class DecliningParser:
    """As `httptools.HttpRequestParser`, which it asks: it ends behind a WebSocket's head alone."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._parser: httptools.HttpRequestParser = protocol.parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    @property
    def declines(self) -> bool:
        """Whether a head was read that makes an offer, and its body will be."""
        if not self._parser.should_upgrade() or self._parser.get_method() == b"CONNECT":
            return False
        return not self._protocol._should_upgrade()

    def feed_data(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            if not self.declines:
                raise
            self._read_head_again()
            self.feed_data(data[end.args[0] :])

    def _read_head_again(self) -> None:
        """By another parser, without the offer; the protocol knows it already."""
        line = self._parser.get_method(), self._protocol.url
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (*line, version)]
        lines += [b"%b: %b" % field for field in self._protocol.headers if field[0] != b"upgrade"]
        heads_are_known = True

        def passed_on(name: str) -> Callable[..., None]:
            def event(*of: bytes) -> None:
                if name in BODY or not heads_are_known:
                    getattr(self._protocol, name)(*of)

            return event

        events = SimpleNamespace(**{name: passed_on(name) for name in HEAD + BODY})
        self._parser = httptools.HttpRequestParser(events)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))
        heads_are_known = False
