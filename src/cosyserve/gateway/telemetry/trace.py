"""One record, one id and one log line per request; every error of a request is answered here.

A WebSocket is such a request, and so is each utterance on it.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyserve.errors import CosyError
from cosyserve.gateway.errors import ClientLeft, Refusal, as_refusal
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.record import Record

if TYPE_CHECKING:
    from cosyserve.gateway.telemetry.spans import Spans

SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
CLIENT_LEFT = 499  # what nginx calls it; nobody receives it
SWITCHED, REFUSED, INTERNAL = 101, 403, 1011  # a WebSocket's begin, its refusal, its end by a bug
ANSWERS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})

log = logging.getLogger("cosyserve.gateway")


class Ledger:
    """Where records go: the log, the metrics and, if wanted, a trace."""

    def __init__(self, metrics: Metrics, spans: Spans | None = None) -> None:
        self._metrics = metrics
        self._spans = spans

    def refuse(self, record: Record, error: Exception) -> Refusal:
        """Notes the error -> the answer to the client."""
        refusal = as_refusal(error)
        record.error = refusal.code
        record.failed = refusal.status_code >= 500
        self._metrics.count_refusal(refusal.code, record.model)
        if refusal.status_code >= 500 and not isinstance(error, CosyError | Refusal):
            log.error("request_id=%s unexpected error", record.request_id, exc_info=error)
        return refusal

    def finish(self, record: Record, route: str) -> None:
        now = time.perf_counter()
        seconds = now - record.started
        record.abort = _abort(record)
        self._metrics.observe(record, route, seconds)
        if self._spans and record.model:
            record.trace_id = self._spans.send(record, route, now)
        log.info("%s", record.line(seconds))


class Trace:
    """ASGI middleware, the outermost: nothing of a request escapes it unlogged or unanswered."""

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers, method = Headers(scope=scope), scope.get("method", "GET")
        record = Record(_request_id(headers), method, scope["path"], _has_body(headers))
        record.client, _ = scope.get("client") or ("", 0)
        record.traceparent = headers.get("traceparent", "")
        scope.setdefault("state", {})["record"] = record

        async def send_with_id(message: Message) -> None:
            if message["type"] in ANSWERS:
                record.status = message.get("status", SWITCHED)
                answered = MutableHeaders(scope=message)
                answered["x-request-id"] = record.request_id
                answered.update(record.headers)
                if record.body_pending:  # whatever still comes is not the next request
                    answered["connection"] = "close"
            elif message["type"] == "websocket.close":
                record.status = record.status or REFUSED
            else:
                record.bytes_out += len(message.get("body", b""))
                record.answered = not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientLeft:
            record.status = CLIENT_LEFT
        except Exception as error:
            refusal = self._ledger.refuse(record, error)
            if record.status == SWITCHED:
                await send({"type": "websocket.close", "code": INTERNAL})
            elif not record.status:
                await refusal.response(scope, receive, send_with_id)
            elif not record.answered:
                raise  # a stream that has begun can only be cut
        finally:
            self._ledger.finish(record, getattr(scope.get("route"), "path", "none"))


def _abort(record: Record) -> str:
    """Why speech that was being made did not come to its end; "" if it did, or was refused."""
    if not record.model:
        return ""
    if record.status == CLIENT_LEFT:
        return "client_left"
    if record.finish == "cancelled":
        return "cancelled"
    return record.error if record.failed else ""


def _request_id(headers: Headers) -> str:
    request_id = headers.get("x-request-id", "")
    return request_id if SANE_ID.fullmatch(request_id) else f"req_{uuid.uuid4().hex}"


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
