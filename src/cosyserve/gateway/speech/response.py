"""Speech in the body of an HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cosyserve.audio.watermark import Watermark
from cosyserve.contracts import Engine, SpeechRequest
from cosyserve.gateway.errors import Refusal, as_refusal
from cosyserve.gateway.speech.framing import Framing, Usage
from cosyserve.gateway.speech.speaking import Speaking
from cosyserve.gateway.speech.word_times import WordTimes
from cosyserve.gateway.telemetry.record import Record

REPORT_SECONDS = 1.0  # for a last event


class SpeechResponse(Response):
    """Begins only once there is audio, so that whatever fails before is an HTTP error.

    What fails later is reported in the framing's own way, or cuts the connection: a listener must
    never take half of a speech for the whole.
    """

    def __init__(
        self,
        engine: Engine,
        request: SpeechRequest,
        framing: Framing,
        record: Record,
        max_tokens: int | None = None,
        ended: Callable[[str, Usage], None] | None = None,
        *,
        watermark: Watermark | None,
        trim: bool = False,
        timestamps: bool = False,
    ) -> None:
        """`ended` is told the finish reason and the usage of a response that has begun."""
        super().__init__(media_type=framing.media_type)
        del self.headers["content-length"]
        self._speaking = Speaking(
            *(engine, request, framing, record, max_tokens),
            watermark=watermark,
            trim=trim,
            timestamps=timestamps,
        )
        self._framing = framing
        self._record = record
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        finish = "error"

        async def tell(times: WordTimes) -> None:
            await self._send(send, self._framing.words(times))

        try:
            async with aclosing(self._speaking.audio(tell)) as audio:
                async for data in audio:
                    if not self._record.status:
                        await self._begin(send)
                    await self._send(send, data)
            finish = self._record.finish
            await self._send(send, b"", last=True)
        except asyncio.CancelledError:
            if not self._record.client_left:
                await self._report(scope["state"]["interruption"](), send)
            raise
        except Exception as error:
            finish = "error"
            await self._report(as_refusal(error), send)
            raise
        finally:
            if self._record.client_left:
                finish = "cancelled"
            if self._ended and self._record.status:
                self._ended(finish, self._speaking.usage)

    async def _report(self, refusal: Refusal, send: Send) -> None:
        """Tells a listener, if any audio was sent; one who doesn't read is not waited for."""
        report = self._framing.failure(refusal) if self._record.status else None
        if report is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._send(send, report, last=True)

    async def _begin(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

    async def _send(self, send: Send, data: bytes, last: bool = False) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": not last})
