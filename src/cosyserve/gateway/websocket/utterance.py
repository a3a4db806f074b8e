"""One utterance on a WebSocket, from its `start` to its `done` or `error`.

Knows no client message and no other utterance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from cosyserve.audio.formats import output_rate
from cosyserve.contracts import Engine
from cosyserve.gateway.errors import ClientLeft, Refusal
from cosyserve.gateway.framing import Usage, open_wire
from cosyserve.gateway.interpreter import Interpreter
from cosyserve.gateway.limits import Gate, Limits
from cosyserve.gateway.record import Record
from cosyserve.gateway.speaking import Speaking
from cosyserve.gateway.trace import CLIENT_LEFT, Ledger
from cosyserve.gateway.websocket.messages import Done, Failed, ServerEvent, Start, Started
from cosyserve.gateway.websocket.text import ArrivingText

FRAME_BYTES = 1 << 16  # of audio: clients refuse large messages, and wait long for them
FAREWELL_SECONDS = 5.0  # for a last event, when the time for all others is over
NOTHING = Usage(input_tokens=0, output_tokens=0, total_tokens=0)

Send = Callable[[ServerEvent | bytes], Awaitable[None]]  # raises ClientLeft


class Cancelled(Exception):  # noqa: N818 - a wish, nobody's fault
    """The client wants to hear no more."""


@dataclass(frozen=True)
class Stage:
    """All that an utterance needs of the gateway."""

    engine: Engine
    interpreter: Interpreter
    limits: Limits
    gate: Gate
    ledger: Ledger


class Utterance:
    """Whatever ends it, ends it once: what comes later is too late."""

    def __init__(
        self, stage: Stage, start: Start, text: ArrivingText, record: Record, key: int | None
    ) -> None:
        self._stage, self._start, self._text = stage, start, text
        self._record, self._key = record, key
        self._speaking: Speaking | None = None
        self._time_left: asyncio.Timeout | None = None  # while there is something to stop
        self._why: Exception | None = None

    def stop(self, why: Exception) -> None:
        """Ends it soon, unless it ends already: `why` is Cancelled, ClientLeft or an error."""
        if self._why is None:
            self._why = why
            if self._time_left and not self._time_left.expired():
                self._time_left.reschedule(0)

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
                await self._farewell(send, self._done("cancelled"))
            except ClientLeft:
                raise
            except Exception as error:
                refused = self._stage.ledger.failed(record, error)
                record.status = refused.status_code
                await self._farewell(send, Failed.of(refused, record.request_id))
        except (ClientLeft, asyncio.CancelledError):
            record.status = CLIENT_LEFT
            raise
        finally:
            record.characters = self._text.characters
            self._stage.ledger.over(record, record.path)

    async def _speak_within_limits(self, send: Send) -> None:
        limits = self._stage.limits
        if self._why:
            raise self._why
        try:
            with self._stage.gate.passage(self._key):
                async with asyncio.timeout(limits.seconds) as self._time_left:
                    await self._speak(send)
        except Exception as error:
            if self._why and self._why is not error:
                raise self._why from error
            self._why = error
            if self._time_left and self._time_left.expired():
                message = f"the utterance took more than {limits.seconds:g} s, which is the limit"
                raise Refusal(504, message, "timeout") from error
            raise
        finally:
            self._time_left = None

    async def _speak(self, send: Send) -> None:
        start = self._start

        async def deliver(item: ServerEvent | bytes) -> None:
            try:
                await send(item)
            except ClientLeft as left:
                self._why = left  # whoever stops us now must not disturb the tidying up
                raise

        wire = await asyncio.to_thread(open_wire, "audio", start.response_format, start.sample_rate)
        request = await self._stage.interpreter.request(start, "")
        await deliver(
            Started(
                request_id=self._record.request_id,
                content_type=wire.media_type,
                sample_rate=output_rate(start.response_format, start.sample_rate),
            )
        )
        # Only now: whoever has said nothing yet takes no place of those who speak.
        request = replace(request, text=await self._text.begin())
        self._record.begun = self._text.begun or self._record.begun
        self._speaking = Speaking(self._stage.engine, request, wire, self._record)
        async with aclosing(self._speaking.audio()) as audio:
            async for data in audio:
                for begin in range(0, len(data), FRAME_BYTES):
                    await deliver(data[begin : begin + FRAME_BYTES])
                self._record.bytes_out += len(data)
        await deliver(self._done(self._record.finish))

    def _done(self, finish: str) -> Done:
        usage = self._speaking.usage if self._speaking else NOTHING
        return Done(request_id=self._record.request_id, finish_reason=finish, usage=usage)

    async def _farewell(self, send: Send, event: ServerEvent) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await send(event)
        except TimeoutError:
            raise ClientLeft from None
