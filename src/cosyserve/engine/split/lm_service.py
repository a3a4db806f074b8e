"""The speech LM as a service, for many requests at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.choices import MAX_WAITING
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.generation import Generation, LMLike
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.profile import CPU_SLOTS
from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.engine.split.service import Leave, ServiceThread
from cosyserve.errors import CosyError, InputError, OverloadError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import SpeechLM

TokenSink = Callable[[SpeechTokens | CosyError], None]


@dataclass(eq=False)
class PendingLMRequest:
    """A request that waits or runs. A paused one has its first tokens and has not come back for
    more."""

    request: LMRequest
    sink: TokenSink
    row: Generation
    due: int  # count of tokens at which the next ones are sent
    opened: float = field(default_factory=time.monotonic)
    sent: int = 0
    paused: bool = False


class LMQueue:
    """Requests that wait for a row, and those that have one. While its only request is paused, the
    LM pauses: first audio is made of what it has drawn, often by the same processor."""

    def __init__(
        self, lm: LMLike, config: LMConfig, sampling: Sampling, *, slots: int, max_waiting: int
    ) -> None:
        """`sampling` is that of requests without their own."""
        self.lm = lm
        self.config = config
        self.sampling = sampling
        self.slots = slots
        self.max_waiting = max_waiting
        self.waiting: deque[PendingLMRequest] = deque()
        self.running: list[PendingLMRequest] = []
        self.waited_seconds = 0.0  # for a row, of all requests together

    def open(self, request: LMRequest, sink: TokenSink) -> PendingLMRequest:
        self._check(request)
        if len(self.waiting) + len(self.running) >= self.max_waiting + self.slots:
            wait = 1.0 + len(self.waiting) / self.slots
            raise OverloadError(f"{len(self.waiting)} requests wait for the LM already", wait)
        row = Generation.from_request(self.config, request, self.sampling)
        pending = PendingLMRequest(request, sink, row, due=request.first_chunk)
        self.waiting.append(pending)
        return pending

    def cancel(self, pending: PendingLMRequest) -> None:
        if pending in self.waiting:
            self.waiting.remove(pending)
        if pending in self.running:
            self.running.remove(pending)
            self.lm.leave(pending.row)

    def resume(self, pending: PendingLMRequest) -> None:
        pending.paused = False

    def step(self) -> bool:
        while self.waiting and self.lm.free:
            pending = self.waiting.popleft()
            self.waited_seconds += time.monotonic() - pending.opened
            self.lm.join(pending.row)
            self.running.append(pending)
        if self.paused:
            return False
        try:
            worked = self.lm.step()
        except Exception as error:
            reason = client_error(error)
            for pending in list(self.running):
                self.cancel(pending)
                pending.sink(reason)
            return True
        for pending in list(self.running):
            self._send(pending)
        return worked

    @property
    def paused(self) -> bool:
        """Whether there is but one request, and it has what it needs."""
        return [pending.paused for pending in self.running] == [True]

    @property
    def idle(self) -> bool:
        return not (self.running or self.waiting)

    def check_idle(self) -> None:
        assert not self.lm.rows, "rows of the LM are taken, but no request is open"

    def _send(self, pending: PendingLMRequest) -> None:
        row = pending.row
        if row.finish is not None:
            self.cancel(pending)
        elif len(row.tokens) < pending.due:
            return
        pending.paused = pending.paused or not pending.sent
        ids = tuple(row.tokens[pending.sent :])
        log_probs = tuple((row.log_probs or ())[pending.sent :])
        pending.sent = len(row.tokens)
        pending.due = pending.sent + pending.request.chunk
        pending.sink(SpeechTokens(ids, row.finish, log_probs))

    def _check(self, request: LMRequest) -> None:
        config = self.config
        for name, ids, size in (
            ("text", request.text, config.text_vocab),
            ("speech", request.speech, config.speech_tokens),
        ):
            if ids and not 0 <= min(ids) <= max(ids) < size:
                raise InputError(f"{name} ids must be 0..{size - 1}, got {min(ids)}..{max(ids)}")
        prompt = 2 + len(request.text) + len(request.speech)
        left = MAX_POSITIONS - prompt
        if left < 1:
            raise InputError(f"a prompt has at most {MAX_POSITIONS - 1} tokens, not {prompt}")
        if not 1 <= request.max_tokens <= left:
            raise InputError(
                f"between 1 and {left} tokens can follow a prompt of {prompt}, "
                f"{request.max_tokens} are asked for"
            )


class LMService:
    """Implements `LMBackend`."""

    def __init__(
        self,
        lm: SpeechLM,
        *,
        sampling: Sampling | None = None,
        slots: int = CPU_SLOTS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """`sampling` is that of requests without their own."""
        runner = LMRunner(lm, slots, MAX_POSITIONS)
        warm_up({"speech LM": runner}, slots)
        self.queue = LMQueue(
            runner, lm.config, sampling or Sampling(), slots=slots, max_waiting=max_waiting
        )
        self._thread = ServiceThread(self.queue, "lm")

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """Tokens as they are drawn. The LM may pause after the first ones, until the next are asked
        for."""
        opened: list[PendingLMRequest] = []

        def enter(queue: LMQueue, sink: TokenSink) -> Leave[LMQueue]:
            pending = queue.open(request, sink)
            opened.append(pending)
            return lambda queue: queue.cancel(pending)

        async with aclosing(self._thread.listen(enter)) as pieces:
            async for piece in pieces:
                yield piece
                if piece.finish is not None:
                    return
                if opened:
                    self._thread.submit(partial(LMQueue.resume, pending=opened.pop()))

    async def close(self) -> None:
        await self._thread.close()
