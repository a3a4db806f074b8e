"""One utterance of a client that is not waiting for an HTTP response, from its start to its end.

Whatever ends it first decides how it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace

from cosyserve.audio.formats import output_rate
from cosyserve.contracts import SpeechRequest
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import (
    DoneEvent,
    ErrorEvent,
    ServerEvent,
    StartedEvent,
    TimedDoneEvent,
    WordsEvent,
)
from cosyserve.gateway.connection.text import TextBuffer
from cosyserve.gateway.errors import ClientLeft
from cosyserve.gateway.limits import shutting_down, took_too_long
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.speech.framing import Framing, Usage, framing_of
from cosyserve.gateway.speech.speaking import Speaking
from cosyserve.gateway.speech.word_times import Spoken, WordTimes
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.telemetry.trace import CLIENT_LEFT
from cosyserve.text.sentences import Split

FRAME_BYTES = 1 << 16  # of audio: clients refuse large messages, and wait long for them
LAST_EVENT_SECONDS = 5.0  # for a last event, when the time for all others is over
NO_USAGE = Usage(input_tokens=0, output_tokens=0, total_tokens=0)

Send = Callable[[ServerEvent | bytes], Awaitable[None]]  # raises ClientLeft


class Cancelled(Exception):  # noqa: N818 - an event, nobody's fault
    """The client wants to hear no more."""


class ConnectionUtterance:
    """Runs once; `stop` may come at any time, from whoever reads the connection.

    Its text is whole, or arrives piece by piece while it is spoken.
    """

    def __init__(
        self,
        context: ConnectionContext,
        fields: SpeechFields,
        text: str | TextBuffer,
        record: Record,
        key: str | None,
    ) -> None:
        self._context = context
        self._fields = fields
        self._text = text
        self._record = record
        self._key = key
        self._speaking: Speaking | None = None
        self._timeout: asyncio.Timeout | None = None  # while there is something to stop
        self._reason: Exception | None = None

    def stop(self, reason: Exception) -> None:
        """Ends it soon, unless it is ending: `reason` is Cancelled, ClientLeft or an error."""
        if self._reason is None:
            self._reason = reason
            if self._timeout and not self._timeout.expired():
                self._timeout.reschedule(0)

    async def run(self, send: Send) -> None:
        """Speaks, and sends the event that ends it. Raises ClientLeft if nobody receives that."""
        record = self._record
        try:
            try:
                await self._speak_within_limits(send)
                record.status = 200
            except Cancelled:
                record.status = 200
                record.finish = "cancelled"
                await self._send_last(send, self._done("cancelled"))
            except ClientLeft:
                raise
            except Exception as error:
                refusal = self._context.ledger.refuse(record, error)
                record.status = refusal.status_code
                await self._send_last(send, ErrorEvent.of(refusal, record.request_id))
        except asyncio.CancelledError:
            record.status = CLIENT_LEFT
            if self._context.gate.closed:
                record.status = self._context.ledger.refuse(record, shutting_down()).status_code
            raise
        except ClientLeft:
            record.status = CLIENT_LEFT
            raise
        finally:
            text = self._text
            record.characters = len(text) if isinstance(text, str) else text.characters
            self._context.ledger.finish(record, record.path)

    async def _speak_within_limits(self, send: Send) -> None:
        limits = self._context.limits
        if self._reason:
            raise self._reason
        try:
            with self._rated():
                async with asyncio.timeout(limits.seconds) as self._timeout:
                    await self._speak(send)
        except Exception as error:
            if self._reason and self._reason is not error:
                raise self._reason from error
            self._reason = error
            if self._timeout and self._timeout.expired():
                raise took_too_long("utterance", limits.seconds) from error
            raise
        finally:
            self._timeout = None

    @contextmanager
    def _rated(self) -> Iterator[None]:
        """Takes the text from what the client may ask for; one in pieces when all have come."""
        rates, text = self._context.rates, self._text
        rates.take(self._record, len(text) if isinstance(text, str) else 0)
        try:
            yield
        finally:
            if isinstance(text, TextBuffer):
                rates.add(self._record, text.characters)

    async def _speak(self, send: Send) -> None:
        fields = self._fields

        async def deliver(item: ServerEvent | bytes) -> None:
            try:
                await send(item)
            except ClientLeft as left:
                self._reason = left  # a later `stop` must not disturb the clean-up
                raise

        self._record.consent = fields.consent
        framing = framing_of(
            "audio", fields.response_format, fields.sample_rate, self._context.encoders
        )
        with ExitStack() as place:
            place.enter_context(self._context.gate.admit(self._key))
            request = await self._context.interpreter.request(fields, "", self._record)
            await deliver(
                StartedEvent(
                    request_id=self._record.request_id,
                    content_type=framing.media_type,
                    sample_rate=output_rate(fields.response_format, fields.sample_rate),
                )
            )
            if isinstance(self._text, str):
                request = replace(request, text=self._text)
            else:
                place.close()  # it is for those who have a text
                request = replace(request, text=await self._text.begin())
                self._record.started = self._text.started or self._record.started
                place.enter_context(self._context.gate.admit(self._key))
            await self._say(request, framing, deliver)
        await deliver(self._done(self._record.finish))

    async def _say(self, request: SpeechRequest, framing: Framing, deliver: Send) -> None:
        self._speaking = Speaking(
            self._context.interpreter.engine(self._fields.model),
            *(request, framing, self._record, self._fields.max_new_tokens),
            watermark=self._context.interpreter.watermark,
            trim=self._context.interpreter.trims(self._fields),
            timestamps=self._fields.timestamps is not None,
            split=self._split,
        )

        async def tell(times: WordTimes) -> None:
            await deliver(WordsEvent(request_id=self._record.request_id, **dict(times)))

        async with aclosing(self._speaking.audio(tell)) as audio:
            async for data in audio:
                for begin in range(0, len(data), FRAME_BYTES):
                    await deliver(data[begin : begin + FRAME_BYTES])
                self._record.bytes_out += len(data)

    @property
    def _split(self) -> Split | None:
        """Into what its text is cut while it arrives; None: it is not."""
        split = None if isinstance(self._text, str) else self._text.split
        return None if split == "none" else split

    def _done(self, finish: str) -> DoneEvent:
        speaking, request_id = self._speaking, self._record.request_id
        usage = speaking.usage if speaking else NO_USAGE
        if self._fields.timestamps:
            spoken = (speaking and speaking.spoken) or Spoken()
            return TimedDoneEvent(
                request_id=request_id, finish_reason=finish, usage=usage, spoken=spoken
            )
        return DoneEvent(request_id=request_id, finish_reason=finish, usage=usage)

    async def _send_last(self, send: Send, event: ServerEvent) -> None:
        try:
            async with asyncio.timeout(LAST_EVENT_SECONDS):
                await send(event)
        except TimeoutError:
            raise ClientLeft from None
