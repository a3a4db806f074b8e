"""Several workers as one: who dies before the first audio hands its request to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk, EngineStats, Mode, SpeechRequest
from cosyserve.engine.workers.pool import WorkerPool
from cosyserve.errors import OverloadError, WorkerError
from tests.engine.mocks import VOICE


@dataclass(eq=False)
class ScriptedWorker:
    """Speaks two chunks, or fails in the place of one."""

    error: Exception | None = None
    error_at: int = 0
    ready: bool = True
    load: int = 0
    asked: list[SpeechRequest] = field(default_factory=list)

    def stats(self) -> EngineStats:
        return EngineStats(self.ready, waiting=1, running=2, sessions=3, tokens=4, lm_seconds=0.5)

    async def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        self.asked.append(request)
        for index in range(2):
            if self.error and index == self.error_at:
                raise self.error
            yield AudioChunk(np.zeros(4, np.float32), index, 0.0, 1, "stop" if index else None)


async def pieces() -> AsyncIterator[str]:
    yield "One, two."


def listen(*workers: ScriptedWorker, text: str | AsyncIterator[str] = "Hi.") -> int:
    """Chunks heard."""

    async def run() -> int:
        pool = WorkerPool(workers)  # type: ignore[type-var]
        return len([chunk async for chunk in pool.open(SpeechRequest(text, VOICE, Mode.PRESET))])

    return asyncio.run(run())


def test_a_worker_that_dies_before_the_first_audio_is_made_up_for() -> None:
    dying, other = ScriptedWorker(WorkerError("died")), ScriptedWorker(load=9)
    assert listen(dying, other) == 2
    assert len(dying.asked) == len(other.asked) == 1


def test_a_request_that_kills_does_not_kill_them_all() -> None:
    last = ScriptedWorker(load=9)
    with pytest.raises(WorkerError, match="died"):
        listen(*(ScriptedWorker(WorkerError("died"), load=load) for load in range(2)), last)
    assert last.asked == []


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (ScriptedWorker(WorkerError("died"), error_at=1), "Hi."),  # part of it was heard
        (ScriptedWorker(WorkerError("died")), pieces()),  # its text can't be read again
        (ScriptedWorker(OverloadError("full", 1.0)), "Hi."),  # the others have more to do
    ],
)
def test_others_are_not_asked_again(first: ScriptedWorker, text: str | AsyncIterator[str]) -> None:
    other = ScriptedWorker(load=1)
    assert first.error
    with pytest.raises(type(first.error)):
        listen(first, other, text=text)
    assert other.asked == []


def test_nobody_else_who_is_ready_is_the_error_of_the_last() -> None:
    with pytest.raises(WorkerError, match="died"):
        listen(ScriptedWorker(WorkerError("died")), ScriptedWorker(ready=False))


def test_counts_are_added() -> None:
    one, two = ScriptedWorker(), ScriptedWorker(ready=False)
    pool = WorkerPool([one, two])  # type: ignore[list-item]
    assert pool.stats() == EngineStats(
        True, waiting=2, running=4, sessions=6, tokens=8, lm_seconds=1.0
    )
