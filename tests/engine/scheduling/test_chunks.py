"""A token2wav that takes its time, as a GPU does: nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cosyserve.contracts import AudioChunk
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.errors import CosyError
from tests.engine.mocks import (
    Clock,
    CountingLM,
    Hummed,
    Humming,
    HummingToken2Wav,
    mock_scheduler,
    plan,
    request,
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


def test_the_lm_goes_on_while_a_later_chunk_is_computed() -> None:
    scheduler, token2wav, lm = slow()
    heard: Heard = []
    scheduler.open(request("a", 200), heard.append)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    scheduler.step()
    scheduler.clock.pass_by(0.8)  # type: ignore[attr-defined]  # of the second that it has
    until(scheduler, token2wav, False)
    before = len(lm.rows[0].tokens)
    for _ in range(10):
        scheduler.step()
    assert len(lm.rows[0].tokens) == before + 10
    (chunk,) = heard
    assert isinstance(chunk, AudioChunk)
    assert chunk.tokens == 25


def test_the_lm_rests_while_a_first_chunk_is_computed_unless_somebody_waits_for_it() -> None:
    scheduler, token2wav, lm = slow()
    heard: Heard = []
    scheduler.open(request("a", 60), heard.append)
    until(scheduler, token2wav, True)
    before = len(lm.rows[0].tokens)
    for _ in range(5):
        assert scheduler.step()
    assert len(lm.rows[0].tokens) == before
    scheduler.open(request("b", 60), lambda _: None)
    for _ in range(5):
        scheduler.step()
    assert [len(row.tokens) for row in lm.rows] == [before + 5, 5]
    assert heard == []
    token2wav.finish(True)
    scheduler.step()
    assert len(heard) == 1


def test_a_first_chunk_does_not_wait_for_a_later_one() -> None:
    scheduler, token2wav, _ = slow()
    old: Heard = []
    new: Heard = []
    scheduler.open(request("old", 200), old.append)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    until(scheduler, token2wav, False)
    scheduler.open(request("new", 60), new.append)
    until(scheduler, token2wav, True)
    assert False in token2wav.queued
    token2wav.finish(True)
    scheduler.step()
    assert (len(old), len(new)) == (1, 1)


def test_whole_texts_do_not_stand_before_a_first_chunk() -> None:
    scheduler, token2wav, _ = slow()
    found: Heard = []
    scheduler.open(request("whole", 20, stream=False), lambda _: None)
    until(scheduler, token2wav, False)
    scheduler.open(request("stream", 60), found.append)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    scheduler.step()
    assert len(found) == 1
    assert token2wav.calls == [["whole"], ["stream"]]


@pytest.mark.parametrize(("left", "waited", "next_one"), [(1.0, 0, 1), (0.2, 0, 0), (0.2, 0.4, 1)])
def test_who_runs_dry_goes_first_and_a_whole_text_does_not_wait_for_ever(
    left: float, waited: float, next_one: int
) -> None:
    """The listener has one second when the whole text comes."""
    scheduler, _, _, clock = mock_scheduler()
    stream = scheduler.open(request("stream", 200), lambda _: None)
    while not stream.playback.chunks:
        scheduler.step()
    assert stream.slack(clock()) == 1.0
    clock.pass_by(1.0 - left - waited)
    whole = scheduler.open(request("whole", 2, stream=False), lambda _: None)
    while not whole.take.ready:
        scheduler._admit()
        scheduler._advance_lm()
    assert scheduler._chunks.choose(scheduler._ready()) == [whole]
    clock.pass_by(waited)
    while not stream.take.ready:
        scheduler._advance_lm()
    assert scheduler._chunks.choose(scheduler._ready()) == [(stream, whole)[next_one]]


def test_a_later_chunk_takes_all_tokens_when_its_listener_needs_it() -> None:
    scheduler, token2wav, lm = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    heard: Heard = []
    session = scheduler.open(request("a", 300), heard.append)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    for _ in range(120):
        scheduler.step()
        clock.pass_by(0.005)
    assert token2wav.calls == [["a"]], "the listener has 0.4 s left, and the LM still draws"
    drawn = len(lm.rows[0].tokens)
    clock.pass_by(0.2)
    scheduler.step()
    end = len(session.due()) - 3
    assert end == 25 + (drawn + 1 - 28) // 25 * 25 >= 100
    token2wav.finish(False)
    while not session.done:
        scheduler.step()
        if False in token2wav.queued:
            token2wav.finish(False)
    assert [chunk.tokens for chunk in heard if isinstance(chunk, AudioChunk)] == [
        25,
        end - 25,
        300 - end,
    ]
    assert token2wav.calls == [["a"]] * 3, "the last one takes all that is left, at once"
    scheduler.check_idle()


def test_a_chunk_that_is_held_back_does_not_wait_for_the_lm_to_wake_up() -> None:
    scheduler, token2wav, lm = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    scheduler.open(request("a", 300), lambda _: None)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    for _ in range(60):
        scheduler.step()
    lm.step = lambda: False  # type: ignore[method-assign]  # an LM elsewhere has fallen silent
    assert scheduler.step(), "there is something to do later"
    clock.pass_by(0.8)
    scheduler.step()
    assert token2wav.calls == [["a"], ["a"]]


def test_calls_that_are_full_are_queued_two_at_a_time() -> None:
    scheduler, token2wav, _ = slow()
    token2wav.rows = 1
    heard: list[Heard] = [[] for _ in range(4)]
    for number, found in enumerate(heard):
        scheduler.open(request(f"{number}", 5, stream=False), found.append)
    until(scheduler, token2wav, False)
    for _ in range(5):
        scheduler.step()
    assert token2wav.calls == [["0"], ["1"]]
    token2wav.finish(False)
    scheduler.step()
    scheduler.step()
    assert token2wav.calls == [["0"], ["1"], ["2"]]
    assert [len(found) for found in heard] == [1, 0, 0, 0]
    for _ in range(2):
        token2wav.finish(False)
        scheduler.step()
    scheduler.step()
    assert token2wav.calls[3:] == [["3"]], "the last one had no company to wait for"
    token2wav.finish(False)
    scheduler.step()
    assert [len(found) for found in heard] == [1, 1, 1, 1]
    scheduler.check_idle()


def test_a_text_waits_from_when_it_is_ready_and_calls_in_a_queue_are_counted_once() -> None:
    scheduler, token2wav, _ = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    token2wav.rows = 1
    sessions = [scheduler.open(request(f"{n}", 5, stream=False), lambda _: None) for n in range(3)]
    for _ in range(10):
        scheduler.step()
    assert len(token2wav.queued[False]) == 2
    clock.pass_by(3.0)
    assert [session.slack(clock()) for session in sessions] == [-2.5] * 3
    for _ in range(3):
        token2wav.finish(False)
        scheduler.step()
        scheduler.step()
        clock.pass_by(1.0)
    assert scheduler.stats().token2wav_seconds == 5.0


def test_leaving_while_a_chunk_is_computed() -> None:
    scheduler, token2wav, lm = slow()
    heard: dict[str, Heard] = {"stays": [], "leaves": []}
    sessions = {
        name: scheduler.open(request(name, 40), found.append) for name, found in heard.items()
    }
    until(scheduler, token2wav, True)
    assert token2wav.calls == [["stays", "leaves"]]
    scheduler.cancel(sessions["leaves"])
    assert len(lm.rows) == 1
    while not scheduler.idle:
        for urgent in list(token2wav.queued):
            token2wav.finish(urgent)
        scheduler.step()
    assert heard["leaves"] == []
    assert sum(len(chunk.samples) for chunk in heard["stays"]) == 40 * 960
    scheduler.check_idle()


def test_a_scheduler_is_not_idle_while_a_chunk_is_computed() -> None:
    scheduler, token2wav, _ = slow()
    session = scheduler.open(request("a", 60), lambda _: None)
    until(scheduler, token2wav, True)
    scheduler.cancel(session)
    assert not scheduler.idle
    assert scheduler.step()
    token2wav.finish(True)
    scheduler.step()
    assert not scheduler.step()
    scheduler.check_idle()
