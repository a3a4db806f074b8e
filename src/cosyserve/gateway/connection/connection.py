"""A connection on which a client asks for one utterance after the other, in whatever protocol.

What is said in which message is the protocol's; who may still speak, and for how long a client may
ask for nothing, is decided here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from cosyserve.errors import CosyError
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import ServerEvent
from cosyserve.gateway.connection.text import TextBuffer
from cosyserve.gateway.connection.utterance import LAST_EVENT_SECONDS, ConnectionUtterance
from cosyserve.gateway.errors import ClientLeft, Refusal, as_refusal
from cosyserve.gateway.limits import shutting_down
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.telemetry.record import Record


class Connection(ABC):
    """It is read at all times, even while it speaks: a client may cancel or leave.

    It has two tasks at most: one reads, the other speaks; neither outlives the other.
    """

    protocol: str  # as the log calls it
    share = 1.0  # of all connections that may be open, how many may be of this kind

    def __init__(self, context: ConnectionContext, record: Record, key: int | None) -> None:
        """`record` is that of the connection, `key` the number of the client's key."""
        self._context = context
        self._record = record
        self._key = key
        self._utterances = 0
        self._utterance: ConnectionUtterance | None = None  # until its last event is sent
        self._idle_timeout: asyncio.Timeout | None = None  # of a client that asks for nothing
        self._tasks: asyncio.TaskGroup | None = None  # while it is open

    @abstractmethod
    async def open(self) -> None:
        """Says to the client what the protocol has for a greeting; raises ClientLeft."""

    @abstractmethod
    async def take_next(self) -> None:
        """Waits for the next message and does what it says; raises ClientLeft, or what is told
        to the client."""

    @abstractmethod
    async def send(self, item: ServerEvent | bytes) -> None:
        """Sends what an utterance has to say; raises ClientLeft. If it is cancelled, what it had
        begun to send is completed, if at all, before the utterance's next item."""

    @abstractmethod
    async def refuse(self, refusal: Refusal) -> None:
        """Answers a message that is refused."""

    @abstractmethod
    async def close(self, refusal: Refusal, going_away: bool) -> None:
        """Ends the connection of a client that has been idle for too long, or of this server."""

    async def serve(self) -> None:
        connections, metrics = self._context.connections, self._context.metrics
        with connections.register(self, self.share), metrics.connections.track_inprogress():
            await self.open()
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._listen()
            except* ClientLeft:
                pass

    def close_when_idle(self) -> None:
        if self._utterance is None:
            self.close_after(0)

    def abort(self) -> None:
        if self._utterance:
            self._utterance.stop(shutting_down())

    def begin(self, fields: SpeechFields, text: str | TextBuffer) -> str:
        """Speaks the text from now on -> the id of the utterance."""
        assert self._tasks
        assert not self._utterance
        if self._idle_timeout and not self._idle_timeout.expired():
            self._idle_timeout.reschedule(None)
        self._utterances += 1
        record = self._record.part(self._utterances, self.protocol, self._record.path)
        self._utterance = ConnectionUtterance(self._context, fields, text, record, self._key)
        self._tasks.create_task(self._speak(self._utterance))
        return record.request_id

    def close_after(self, seconds: float) -> None:
        """Closes the connection unless the client asks for something within these seconds."""
        if self._idle_timeout and not self._idle_timeout.expired():
            wait = 0 if self._context.connections.closed else seconds
            self._idle_timeout.reschedule(asyncio.get_running_loop().time() + wait)

    async def _speak(self, utterance: ConnectionUtterance) -> None:
        try:
            await utterance.run(self.send)
        finally:
            self._utterance = None
            self.utterance_ended()
            self.close_after(self._context.limits.seconds)

    def utterance_ended(self) -> None:  # noqa: B027 - most protocols have nothing to do
        """Called when the last word of an utterance was said."""

    async def _listen(self) -> None:
        try:
            async with asyncio.timeout(None) as self._idle_timeout:
                self.close_after(self._context.limits.idle_seconds)
                while True:
                    await self._take()
                    await asyncio.sleep(0)  # a flood of messages must not hold up the others
        except ClientLeft:
            pass  # the utterance has time to tidy up
        except TimeoutError:
            if not (self._idle_timeout and self._idle_timeout.expired()):
                raise
            await self._close()
        finally:
            self._idle_timeout = None
            if self._utterance:
                self._utterance.stop(ClientLeft())

    async def _take(self) -> None:
        try:
            await self.take_next()
        except (Refusal, CosyError) as error:
            refusal = as_refusal(error)
            self._context.metrics.count_refusal(refusal.code)
            await self.refuse(refusal)

    async def _close(self) -> None:
        going = self._context.connections.closed
        late = Refusal(408, "nothing was asked for in time: connect again", "timeout")
        try:
            async with asyncio.timeout(LAST_EVENT_SECONDS):
                await self.close(shutting_down() if going else late, going)
        except TimeoutError as error:
            raise ClientLeft from error
