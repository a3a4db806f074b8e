"""A token2wav that takes its time, as a GPU does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosyserve.contracts import AudioChunk
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.errors import CosyError
from tests.engine.mocks import (
    Clock,
    CountingLM,
    Hummed,
    Humming,
    HummingToken2Wav,
    plan,
)

Heard = list[AudioChunk | CosyError]


class SlowToken2Wav(HummingToken2Wav):
    """As on a GPU: what is started is ready when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: dict[bool, list[Hummed]] = {}  # by urgency
        self.rows = 100  # that fit in a call

    def max_batch(self, states: Sequence[Humming], tokens: Sequence[Sequence[int]]) -> int:
        return min(self.rows, len(states))

    def start(self, *args: Any, urgent: bool) -> Hummed:
        hummed = super().start(*args, urgent=urgent)
        hummed.ready = False
        self.queued.setdefault(urgent, []).append(hummed)
        return hummed

    def finish(self, urgent: bool) -> None:
        self.queued[urgent].pop(0).ready = True
        if not self.queued[urgent]:
            del self.queued[urgent]


def slow() -> tuple[Scheduler, SlowToken2Wav, CountingLM]:
    lm, token2wav = CountingLM(4), SlowToken2Wav()
    return Scheduler(lm, [token2wav], plan, slots=4, clock=Clock()), token2wav, lm


def until(scheduler: Scheduler, token2wav: SlowToken2Wav, urgent: bool) -> None:
    while urgent not in token2wav.queued:
        assert scheduler.step()
