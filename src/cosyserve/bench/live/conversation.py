"""One conversation: a connection on which texts are spoken, a word at a time, some interrupted."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from random import Random

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from cosyserve.bench.client import BYTES_PER_SECOND, Endpoint, leading_silence_seconds
from cosyserve.bench.items import Item
from cosyserve.bench.live.dialect import Dialect
from cosyserve.bench.playback import Arrival, heard_by
from cosyserve.bench.sample import Failure, Sample
from cosyserve.errors import InputError

MAX_HEARD = 1.0  # seconds from first audio until an interruption


@dataclass(frozen=True)
class Talker:
    """How words come, and how often somebody interrupts what is said."""

    slowest: float = 20.0  # words a second
    fastest: float = 60.0
    interrupts: float = 0.25  # the share of turns

    def __post_init__(self) -> None:
        if not 0 < self.slowest <= self.fastest:
            raise InputError("words a second: give two numbers above 0, the smaller one first")
        if not 0 <= self.interrupts <= 1:
            raise InputError(f"the share of interruptions is 0 to 1, got {self.interrupts:g}")


@dataclass(frozen=True)
class Turn:
    """A text that was spoken; its times count from its first word on."""

    sample: Sample
    stopped: float | None = None  # seconds from an interruption to its confirmation; None: none was
    heard: float = 0.0  # seconds of its audio, at the interruption
    word_ends: tuple[float, ...] = ()  # seconds of its audio, as far as they were told
    spoken: int | None = None  # words that were heard, by what the server has told


class Conversation:
    def __init__(
        self, endpoint: Endpoint, dialect: Dialect, talker: Talker, random: Random, begun: float
    ) -> None:
        """`begun`: when the run did, by the clock of `time.perf_counter`."""
        self._endpoint = endpoint
        self._dialect = dialect
        self._talker = talker
        self._random = random
        self._begun = begun

    async def run(self, items: list[Item]) -> list[Turn]:
        """All turns that came about: a connection that is lost ends the conversation."""
        endpoint, turns = self._endpoint, list[Turn]()
        headers = self._dialect.headers(endpoint.api_key) if endpoint.api_key else {}
        url = endpoint.root.replace("http", "ws", 1) + self._dialect.path(endpoint.voice)
        try:
            async with connect(
                url, additional_headers=headers, compression=None, max_size=None
            ) as socket:
                for number, item in enumerate(items):
                    turns.append(await self._turn(socket, item, f"turn-{number}"))
                    if turns[-1].sample.failure:
                        break
        except InvalidStatus as error:
            turns.append(self._failed(items[len(turns)], f"HTTP {error.response.status_code}", ""))
        except (OSError, WebSocketException) as error:
            turns.append(self._failed(items[len(turns) % len(items)], "cut off", str(error)))
        return turns

    async def _turn(self, socket: ClientConnection, item: Item, name: str) -> Turn:
        turn = TurnInProgress(socket, self._dialect, name)
        heard = self._random.uniform(0, MAX_HEARD)
        interrupted = self._random.random() < self._talker.interrupts
        interrupted = interrupted and self._dialect.cancel(name) is not None
        pauses = self._pauses()
        failure: Failure | None = None
        for message in self._dialect.begin(name, self._endpoint.voice, self._endpoint.model):
            await socket.send(json.dumps(message))
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                writing = asyncio.create_task(turn.write(item.text.split(), pauses))
                try:
                    await turn.hear(writing, heard if interrupted else None)
                finally:
                    writing.cancel()
                    await asyncio.wait([writing])
        except TimeoutError:
            failure = Failure("timeout", f"not finished after {self._endpoint.timeout:g} s")
        total = time.perf_counter() - began
        if turn.error:
            failure = Failure("error", turn.error)
        elif not failure and not turn.arrivals and turn.stopped is None:
            failure = Failure("empty", "an answer without audio")
        arrivals = tuple(Arrival(at - began, seconds) for at, seconds in turn.arrivals)
        silence = leading_silence_seconds(bytes(turn.audio))
        sample = Sample(item.id, began - self._begun, total, arrivals, failure, silence)
        return Turn(sample, turn.stopped, turn.heard, tuple(turn.word_ends), turn.spoken)

    def _pauses(self) -> list[float]:
        """Between words, as many as there may ever be: a language model has its own pace."""
        rate = self._random.uniform(self._talker.slowest, self._talker.fastest)
        return [self._random.uniform(0.5, 1.5) / rate for _ in range(64)]

    def _failed(self, item: Item, kind: str, detail: str) -> Turn:
        now = time.perf_counter() - self._begun
        return Turn(Sample(item.id, now, 0.0, (), Failure(kind, detail[:300])))


class TurnInProgress:
    """What was heard of a turn."""

    def __init__(self, socket: ClientConnection, dialect: Dialect, name: str) -> None:
        self._socket = socket
        self._dialect = dialect
        self._name = name
        self._interrupted: float | None = None  # when it was
        self.arrivals: list[Arrival] = []  # by the clock
        self.audio = bytearray()
        self.word_ends: list[float] = []
        self.spoken: int | None = None
        self.error = ""
        self.stopped: float | None = None

    @property
    def heard(self) -> float:
        """Seconds of audio that were played until the interruption."""
        return heard_by(self.arrivals, self._interrupted) if self._interrupted else 0.0

    async def write(self, words: list[str], pauses: list[float]) -> None:
        for number, word in enumerate(words):
            if number:
                await asyncio.sleep(pauses[number % len(pauses)])
            await self._send(self._dialect.text(self._name, f"{word} "))
        for message in self._dialect.end(self._name):
            await self._send(message)

    async def hear(self, writing: asyncio.Task[None], interrupt_after: float | None) -> None:
        """Listens to the end; `interrupt_after`: so many seconds after the first audio."""
        interrupting: asyncio.Task[None] | None = None
        try:
            while True:
                message, cancelled = await self._socket.recv(), self._interrupted is not None
                heard = self._dialect.hear(message, self._name, cancelled=cancelled)
                now = time.perf_counter()
                if heard.audio:
                    self.arrivals.append(Arrival(now, len(heard.audio) / BYTES_PER_SECOND))
                    self.audio += heard.audio
                    if interrupt_after is not None and interrupting is None:
                        interrupting = asyncio.create_task(
                            self._interrupt(writing, interrupt_after)
                        )
                self.word_ends += heard.word_ends
                if heard.error:
                    self.error = heard.error
                    return
                if heard.over:
                    if self._interrupted is not None:
                        self.stopped = now - self._interrupted
                    self.spoken = self._count(heard.spoken)
                    return
        finally:
            if interrupting:
                interrupting.cancel()
                await asyncio.wait([interrupting])

    def _count(self, told: int | None) -> int | None:
        """The words that were heard: as the server tells, or else by their times."""
        if told is not None or not self._dialect.tells_words:
            return told
        return sum(end <= self.heard for end in self.word_ends)

    async def _interrupt(self, writing: asyncio.Task[None], seconds: float) -> None:
        await asyncio.sleep(seconds)
        writing.cancel()
        await asyncio.wait([writing])
        self._interrupted = time.perf_counter()
        await self._send(self._dialect.cancel(self._name))

    async def _send(self, message: object) -> None:
        await self._socket.send(json.dumps(message))
