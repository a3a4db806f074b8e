"""A connection on which a client asks for utterances, in whatever protocol.

What is said in which message is the protocol's; who may still speak, and for how long a client may
ask for nothing, is decided here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from cosyserve.errors import CosyError
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.text import TextBuffer
from cosyserve.gateway.connection.utterance import LAST_EVENT_SECONDS, ConnectionUtterance, Send
from cosyserve.gateway.errors import ClientLeft, Refusal, as_refusal
from cosyserve.gateway.limits import shutting_down
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.telemetry.record import Record


class Connection(ABC):
    """It is read at all times, even while it speaks: a client may cancel or leave.

    One task reads, one more speaks each utterance; none outlives the others.
    """

    protocol: str  # as the log calls it
    path = ""  # of all utterances, where clients ask at many
    share = 1.0  # of all connections that may be open, how many may be of this kind

    def __init__(self, context: ConnectionContext, record: Record, key: str | None) -> None:
        """`record` is that of the connection, `key` the name of the client's key."""
        self._context = context
        self._record = record
        self._key = key
        self._utterances = 0
        self._speaking: set[ConnectionUtterance] = set()  # until their last events are sent
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
        if not self._speaking:
            self.close_after(0)

    def abort(self) -> None:
        self._stop(shutting_down())

    @property
    def _utterance(self) -> ConnectionUtterance | None:
        """The one that is being spoken, in protocols with one at a time."""
        return next(iter(self._speaking), None)

    def begin(
        self, fields: SpeechFields, text: str | TextBuffer, send: Send
    ) -> ConnectionUtterance:
        """Speaks the text from now on. If `send` is cancelled, what it had begun to send is
        completed, if at all, before the utterance's next item."""
        if not (self._tasks and self._idle_timeout):
            raise ClientLeft
        if not self._idle_timeout.expired():
            self._idle_timeout.reschedule(None)
        self._utterances += 1
        path = self.path or self._record.path
        record = self._record.part(self._utterances, self.protocol, path)
        utterance = ConnectionUtterance(self._context, fields, text, record, self._key)
        self._speaking.add(utterance)
        self._tasks.create_task(self._speak(utterance, send))
        return utterance

    def close_after(self, seconds: float) -> None:
        """Closes the connection unless the client asks for something within these seconds."""
        if self._idle_timeout and not self._idle_timeout.expired():
            wait = 0 if self._context.connections.closed else seconds
            self._idle_timeout.reschedule(asyncio.get_running_loop().time() + wait)

    async def _speak(self, utterance: ConnectionUtterance, send: Send) -> None:
        try:
            await utterance.run(send)
        finally:
            self._speaking.discard(utterance)
        if not self._speaking:
            self.close_after(self._context.limits.seconds)
        await self.utterance_ended(utterance)

    async def utterance_ended(self, utterance: ConnectionUtterance) -> None:  # noqa: B027 - most protocols have nothing to do
        """Called when the last word of an utterance was said."""

    def _stop(self, reason: Exception) -> None:
        for utterance in tuple(self._speaking):
            utterance.stop(reason)

    async def _listen(self) -> None:
        try:
            async with asyncio.timeout(None) as self._idle_timeout:
                self.close_after(self._context.limits.idle_seconds)
                while True:
                    await self._take()
                    await asyncio.sleep(0)  # a flood of messages must not hold up the others
        except ClientLeft:
            pass  # utterances have time to tidy up
        except TimeoutError:
            if not (self._idle_timeout and self._idle_timeout.expired()):
                raise
            await self._close()
        finally:
            self._idle_timeout = None
            self._stop(ClientLeft())

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
