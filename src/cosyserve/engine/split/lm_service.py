"""The speech LM alone, for many requests at once. Knows no text and no audio."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from cosyserve.contracts import LMRequest, SpeechTokens
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.profile import CPU_SLOTS
from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.engine.scheduling.scheduler import POSITIONS, WAITING, Rows
from cosyserve.engine.split.service import Leave, ServiceThread
from cosyserve.errors import CosyError, InputError, OverloadError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import SpeechLM

Sink = Callable[[SpeechTokens | CosyError], None]


@dataclass(eq=False)
class Asked:
    """A request on its way; `due` is the count of tokens at which the next piece is sent. One that
    is content has its first piece and has not come back for more."""

    request: LMRequest
    sink: Sink
    row: Generation
    due: int
    sent: int = 0
    content: bool = False


class LMQueue:
    """Requests that wait for a row, and those that have one. While it is content, the LM rests:
    first audio is made of what it has said, often by the same processor."""

    def __init__(self, lm: Rows, config: LMConfig, *, slots: int, waiting: int) -> None:
        self.lm, self.config = lm, config
        self.slots, self.limit = slots, waiting
        self.waiting: deque[Asked] = deque()
        self.running: list[Asked] = []

    def open(self, request: LMRequest, sink: Sink) -> Asked:
        self._check(request)
        if len(self.waiting) + len(self.running) >= self.limit + self.slots:
            wait = 1.0 + len(self.waiting) / self.slots
            raise OverloadError(f"{len(self.waiting)} requests wait for the LM already", wait)
        asked = Asked(request, sink, Generation.of(self.config, request), request.first_chunk)
        self.waiting.append(asked)
        return asked

    def cancel(self, asked: Asked) -> None:
        if asked in self.waiting:
            self.waiting.remove(asked)
        if asked in self.running:
            self.running.remove(asked)
            self.lm.leave(asked.row)

    def go_on(self, asked: Asked) -> None:
        asked.content = False

    def step(self) -> bool:
        while self.waiting and self.lm.free:
            asked = self.waiting.popleft()
            self.lm.join(asked.row)
            self.running.append(asked)
        if self.content:
            return False
        try:
            worked = self.lm.step()
        except Exception as error:
            reason = client_error(error)
            for asked in list(self.running):
                self.cancel(asked)
                asked.sink(reason)
            return True
        for asked in list(self.running):
            self._tell(asked)
        return worked

    @property
    def content(self) -> bool:
        """Whether there is but one request, and it has what it wants."""
        return [asked.content for asked in self.running] == [True]

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting)

    def check_idle(self) -> None:
        assert not self.lm.rows, "rows of the LM are taken, but nobody asked"

    def _tell(self, asked: Asked) -> None:
        row = asked.row
        if row.finish is not None:
            self.cancel(asked)
        elif len(row.tokens) < asked.due:
            return
        asked.content = asked.content or not asked.sent
        ids = tuple(row.tokens[asked.sent :])
        log_probs = tuple((row.log_probs or ())[asked.sent :])
        asked.sent = len(row.tokens)
        asked.due = asked.sent + asked.request.chunk
        asked.sink(SpeechTokens(ids, row.finish, log_probs))

    def _check(self, request: LMRequest) -> None:
        config = self.config
        for what, ids, size in (
            ("text", request.text, config.text_vocab),
            ("speech", request.speech, config.speech_tokens),
        ):
            if ids and not 0 <= min(ids) <= max(ids) < size:
                raise InputError(f"{what} ids must be 0..{size - 1}, got {min(ids)}..{max(ids)}")
        taken = 2 + len(request.text) + len(request.speech)
        if not 1 <= request.max_tokens <= POSITIONS - taken:
            raise InputError(
                f"between 1 and {POSITIONS - taken} tokens can follow a prompt of {taken}, "
                f"{request.max_tokens} are asked for"
            )


class LMService:
    """Implements `contracts.LMBackend`."""

    def __init__(self, lm: SpeechLM, *, slots: int = CPU_SLOTS, waiting: int = WAITING) -> None:
        rows = LMRunner(lm, slots, POSITIONS)
        warm_up({"speech LM": rows}, slots)
        self.queue = LMQueue(rows, lm.config, slots=slots, waiting=waiting)
        self._alone = ServiceThread(self.queue, "lm")

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """May rest after the first piece, until it is asked for the next."""
        entered: list[Asked] = []

        def enter(queue: LMQueue, sink: Sink) -> Leave[LMQueue]:
            asked = queue.open(request, sink)
            entered.append(asked)
            return lambda queue: queue.cancel(asked)

        async with aclosing(self._alone.listen(enter)) as pieces:
            async for piece in pieces:
                yield piece
                if piece.finish is not None:
                    return
                if entered:
                    self._alone.tell(partial(LMQueue.go_on, asked=entered.pop()))

    async def close(self) -> None:
        await self._alone.close()
