"""Voices learned on demand: once, remembered within bytes, never at the cost of another request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from cosyserve.contracts import Voice
from cosyserve.errors import VoiceError
from cosyserve.voices.memory import learned
from cosyserve.voices.memory.learned import LearnedVoices, voice_size
from tests.waiting import PATIENCE, until

PRESET = Voice(
    "", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(192, np.float32), name="p"
)
PLENTY = 100 * voice_size(PRESET)


class Teacher:
    """Learns a new voice whenever it is called, while it is allowed to."""

    def __init__(self) -> None:
        self.calls = self.cancelled = 0
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.error: Exception | None = None

    async def __call__(self) -> Voice:
        self.calls += 1
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return replace(PRESET)


Story = Callable[[LearnedVoices, Teacher], Awaitable[None]]


def tell(story: Story, cache_bytes: int = PLENTY) -> None:
    async def run() -> None:
        await story(LearnedVoices(cache_bytes), Teacher())

    asyncio.run(run())


def waiters(voices: LearnedVoices) -> int:
    return sum(learning.waiters for learning in voices._running.values())


def test_a_voice_is_learned_once() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        first = await voices.get("text", b"audio", learn=teacher)
        assert await voices.get("text", b"audio", learn=teacher) is first
        assert teacher.calls == 1

    tell(story)


@pytest.mark.parametrize(
    "source", [("text", b"other"), ("other", b"audio"), ("texta", b"udio"), ("text",), ("\ud800",)]
)
def test_another_source_is_another_voice(source: tuple[bytes | str, ...]) -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        first = await voices.get("text", b"audio", learn=teacher)
        assert await voices.get(*source, learn=teacher) is not first
        assert teacher.calls == 2

    tell(story)


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        for source in ("a", "b", "a", "c", "a"):
            await voices.get(source, learn=teacher)
        assert teacher.calls == 3
        await voices.get("b", learn=teacher)
        assert teacher.calls == 4

    tell(story, 2 * voice_size(PRESET))


def test_nothing_is_remembered_in_no_bytes() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        for _ in range(2):
            await voices.get("a", learn=teacher)
        assert teacher.calls == 2

    tell(story, 0)


def test_a_failure_is_not_remembered() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        teacher.error = VoiceError("no voice")
        for _ in range(2):
            with pytest.raises(VoiceError, match="no voice"):
                await voices.get("a", learn=teacher)
        teacher.error = None
        assert await voices.get("a", learn=teacher)
        assert teacher.calls == 3

    tell(story)


@pytest.mark.parametrize("fails", [False, True])
def test_requests_at_once_share_the_learning(fails: bool) -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        teacher.error = VoiceError("no voice") if fails else None
        teacher.allowed.clear()
        tasks = [asyncio.create_task(voices.get("a", learn=teacher)) for _ in range(5)]
        await until(lambda: waiters(voices) == 5)
        teacher.allowed.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(set(map(id, results))) == 1
        assert isinstance(results[0], VoiceError if fails else Voice)
        assert teacher.calls == 1

    tell(story)


def test_who_leaves_does_not_take_the_voice_along() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        teacher.allowed.clear()
        first = asyncio.create_task(voices.get("a", learn=teacher))
        await until(lambda: teacher.calls > 0)
        second = asyncio.create_task(voices.get("a", learn=teacher))
        await until(lambda: waiters(voices) == 2)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        teacher.allowed.set()
        assert await second
        assert (teacher.calls, teacher.cancelled) == (1, 0)

    tell(story)


def test_the_last_who_leaves_ends_the_learning() -> None:
    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        teacher.allowed.clear()
        task = asyncio.create_task(voices.get("a", learn=teacher))
        await until(lambda: teacher.calls > 0)
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), teacher.cancelled) == (True, 1)
        teacher.allowed.set()
        assert await voices.get("a", learn=teacher)
        assert teacher.calls == 2

    tell(story)


def test_all_of_a_voice_counts() -> None:
    size = voice_size(PRESET)
    assert size >= PRESET.embedding.nbytes
    assert voice_size(replace(PRESET, source=np.zeros(100, np.float32))) == size + 400
    assert voice_size(replace(PRESET, consent="yes")) == size + 3


def test_a_voice_that_nobody_uses_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "IDLE_SECONDS", 0.05)

    async def story(voices: LearnedVoices, teacher: Teacher) -> None:
        await voices.get("text", b"audio", learn=teacher)
        async with asyncio.timeout(PATIENCE):
            while len(voices._voices):
                await asyncio.sleep(0.01)
        await voices.get("text", b"audio", learn=teacher)
        assert teacher.calls == 2

    tell(story)
