"""A connection with several streams of text, which are spoken at the same time."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.connection import Connection
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import (
    DoneEvent,
    ErrorEvent,
    ServerEvent,
    TimedDoneEvent,
    WordsEvent,
)
from cosyserve.gateway.connection.surrogates import CharacterJoiner
from cosyserve.gateway.connection.text import TextBuffer, TextSplit
from cosyserve.gateway.connection.utterance import Cancelled, ConnectionUtterance
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.limits import too_many
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.telemetry.record import Record
from cosyserve.text.pronunciation.ssml import is_ssml, may_become_ssml
from cosyserve.text.split import speakable

MAX_STREAMS = 64  # of one connection; how many speak at once is limited as for all requests
MAX_MARKS = 64  # characters that are kept of what nobody speaks, for the text behind it


class SpeechStream:
    """A text in pieces, spoken in order. A flush ends an utterance: it is spoken without waiting
    for more. What comes after it is the next one, and waits for its turn. Marks alone are no
    utterance: they wait for the text behind them, flushed or not.

    Of an utterance that ends before its text does, the rest is passed over.
    """

    def __init__(
        self,
        connection: StreamsConnection,
        name: str,
        fields: SpeechFields,
        split: TextSplit | None = None,
    ) -> None:
        self._connection = connection
        self._split = split
        self._text: TextBuffer | None = None  # that is being spoken
        self._waiting: deque[TextBuffer] = deque()
        self._utterance: ConnectionUtterance | None = None
        self._discarding = False
        self._characters = CharacterJoiner()
        self._arrived = 0  # characters of all pieces
        self._marks = ""  # that wait for a text
        self._flushed_marks = ""  # before those
        self.name = name
        self.fields = fields
        self.utterances = 0  # that were begun
        self.characters = 0  # of the texts of those that have ended
        self.done: DoneEvent | None = None  # what those had to say at their ends, added up
        self.ended = False  # no more text comes
        self.failed = False  # its last utterance has, with an error that the client was told

    @property
    def speaking(self) -> bool:
        return self._utterance is not None

    @property
    def flushed(self) -> bool:
        """Whether all of the text is there that is being spoken."""
        return self._text is not None and self._text.ended

    @property
    def flushed_by_client(self) -> bool:
        """Whether a flush has ended it, and not the stream's end."""
        return self._text is not None and self._text.flushed

    @property
    def empty(self) -> bool:
        """Whether an utterance has begun of which there is nothing to say yet."""
        return self._open_text is not None and self._open_text.started is None

    @property
    def last(self) -> bool:
        """Whether its last utterance is being spoken."""
        return self.ended and not self._waiting

    @property
    def over(self) -> bool:
        return self.ended and not self.speaking

    def start(self) -> None:
        """Begins an utterance before there is a text, for clients that wait until it has begun."""
        self._begin_text()

    def push(self, piece: str) -> None:
        if self._discarding:
            return
        piece = self._characters.push(piece)
        self._arrived += len(piece)
        text = self._open_text
        if text is None or text.started is None:
            if not speakable(piece):
                self._hold(piece)
                return
            piece = self._with_marks(piece)
            text = text or self._begin_text()
            text.before = self._arrived - len(piece)
        try:
            self._connection.check_waiting(sum(t.characters for t in self._waiting) + len(piece))
            text.push(piece)
        except Refusal as refusal:
            self.fail(refusal)

    def keep_alive(self) -> None:
        """More of the text comes, but not soon."""
        if text := self._open_text:
            text.push("")

    def flush(self) -> bool:
        """Ends the utterance -> whether there was one to end."""
        text = self._open_text
        if ended := self._end_text():
            assert text
            text.flushed = True
        self._flushed_marks = (self._flushed_marks + self._marks)[-MAX_MARKS:]
        self._marks = ""
        return ended

    def end(self) -> None:
        """Ends the stream: what has come is spoken."""
        if not self._end_text() and self._open_text:
            self.clear()  # an utterance without a text
        self.ended = True

    def fail(self, refusal: Refusal) -> None:
        """Ends the utterance that is being spoken; the rest of the text is passed over."""
        assert self._utterance
        self._waiting.clear()
        self._pass_over()
        self._utterance.stop(refusal)

    def close(self) -> None:
        """Ends the stream: what was flushed is spoken, and nothing else."""
        if text := self._open_text:
            if text is self._text:
                self.clear()
            else:
                self._waiting.pop()
        self.ended = True

    def clear(self) -> None:
        """Stops it at once; what has come is not spoken."""
        self._waiting.clear()
        self._discarding = False
        self._drop_held()
        if self._utterance and self._text:
            self._utterance.stop(Cancelled())
            self._text.end()

    async def send(self, item: ServerEvent | bytes) -> None:
        if isinstance(item, ErrorEvent):
            self.failed = True
        if isinstance(item, WordsEvent) and isinstance(self.done, TimedDoneEvent):
            item = item.later(self.done.spoken.seconds)
        if isinstance(item, DoneEvent):
            assert self._text
            item = item.after(self.done, self._text.before) if self.done else item
            self.done = item
        await self._connection.tell(self, item)

    def utterance_ended(self) -> None:
        assert self._text
        lost = self._open_text if self.failed else self._text
        if lost and not lost.ended:
            self._pass_over()
        if self.failed:
            self._waiting.clear()
        self.characters += self._text.characters
        self._text = self._utterance = None
        self._advance()

    @property
    def _open_text(self) -> TextBuffer | None:
        """The text that the next piece belongs to."""
        text = self._waiting[-1] if self._waiting else self._text
        return text if text and not text.ended else None

    def _hold(self, marks: str) -> None:
        self.keep_alive()
        if not (self._open_text or self._marks or self._flushed_marks):
            marks = marks.lstrip()
        self._marks = (self._marks + marks)[-MAX_MARKS:]

    def _with_marks(self, piece: str) -> str:
        """The start of a text: SSML begins anew after a flush, all else goes on."""
        start = self._marks + piece
        if not (is_ssml(start) or may_become_ssml(start)):
            start = self._flushed_marks + start
        self._marks = self._flushed_marks = ""
        return start

    def _pass_over(self) -> None:
        """The rest of the text, up to a flush or its end."""
        self._discarding = True
        self._drop_held()

    def _drop_held(self) -> None:
        self._characters.reset()
        self._marks = self._flushed_marks = ""

    def _begin_text(self) -> TextBuffer:
        text = self._connection.new_text(self._split)
        self._waiting.append(text)
        self._advance()
        return text

    def _end_text(self) -> bool:
        """Ends the text that arrives -> whether there was one to end."""
        self._discarding = False
        text = self._open_text
        if text is None or text.started is None:
            return False
        text.end()
        return True

    def _advance(self) -> None:
        if self._utterance or not self._waiting:
            return
        fields = self.fields
        if self.utterances and fields.response_format is AudioFormat.WAV:
            fields = fields.model_copy(update={"response_format": AudioFormat.PCM})  # one header
        self._text, self.failed = self._waiting.popleft(), False
        self.utterances += 1
        self._utterance = self._connection.begin_in(self, fields, self._text)


class StreamsConnection(Connection):
    def __init__(self, context: ConnectionContext, record: Record, key: str | None) -> None:
        super().__init__(context, record, key)
        self._stream_of: dict[ConnectionUtterance, SpeechStream] = {}
        self.streams: dict[str, SpeechStream] = {}  # by their names, until they are over

    @abstractmethod
    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        """Tells the client what an utterance of the stream has to say; raises ClientLeft."""

    @abstractmethod
    async def tell_over(self, stream: SpeechStream) -> None:
        """Tells the client that a stream is over; raises ClientLeft."""

    def open_stream(
        self, name: str, fields: SpeechFields, split: TextSplit | None = None
    ) -> SpeechStream:
        if len(self.streams) >= MAX_STREAMS:
            failed = next((s.name for s in self.streams.values() if s.failed), None)
            if failed is None:
                raise too_many(f"{MAX_STREAMS} contexts are open on this connection")
            del self.streams[failed]  # its client may never end it
        stream = self.streams[name] = SpeechStream(self, name, fields, split)
        return stream

    async def settle(self, stream: SpeechStream) -> None:
        """Says that a stream is over if it is: when it is ended, and when it was spoken."""
        if stream.over and self.streams.get(stream.name) is stream:
            del self.streams[stream.name]
            await self.tell_over(stream)

    def begin_in(
        self, stream: SpeechStream, fields: SpeechFields, text: TextBuffer
    ) -> ConnectionUtterance:
        utterance = self.begin(fields, text, stream.send)
        self._stream_of[utterance] = stream
        return utterance

    async def utterance_ended(self, utterance: ConnectionUtterance) -> None:
        stream = self._stream_of.pop(utterance)
        stream.utterance_ended()
        await self.settle(stream)

    def new_text(self, split: TextSplit | None) -> TextBuffer:
        limits = self._context.limits
        return TextBuffer(limits.input_characters, limits.idle_seconds, split)

    def check_waiting(self, characters: int) -> None:
        """Refuses more text than one that may wait to be spoken."""
        most = self._context.limits.input_characters
        if characters > most:
            message = f"more than {most} characters wait to be spoken, which is the limit"
            raise Refusal(400, message, "input_too_long", param="text")
