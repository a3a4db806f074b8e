"""Later chunks while a token2wav takes its time, as a GPU does: nobody waits for it."""

from __future__ import annotations

import pytest

from cosyserve.contracts import AudioChunk
from tests.engine.mocks import (
    Clock,
    mock_scheduler,
    request,
)
from tests.engine.scheduling.slow_token2wav import Heard, slow, until


@pytest.mark.parametrize("urgent", [True, False])
def test_the_lm_rests_while_chunks_are_computed_unless_somebody_waits_for_it(urgent: bool) -> None:
    scheduler, token2wav, lm = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    heard: Heard = []
    scheduler.open(request("a", 200), heard.append)
    until(scheduler, token2wav, True)
    if not urgent:
        token2wav.finish(True)
        scheduler.step()
        clock.pass_by(0.8)  # of the second that it has
        until(scheduler, token2wav, False)
    before = len(lm.rows[0].tokens)
    for _ in range(5):
        assert scheduler.step()
    assert len(lm.rows[0].tokens) == before
    scheduler.open(request("b", 60), lambda _: None)
    for _ in range(5):
        scheduler.step()
    assert [len(row.tokens) for row in lm.rows] == [before + 5, 5]
    chunks = len(heard)
    token2wav.finish(urgent)
    scheduler.step()
    assert len(heard) == chunks + 1


def test_the_lm_draws_for_a_listener_who_has_little_left_though_chunks_are_computed() -> None:
    scheduler, token2wav, lm = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    scheduler.open(request("a", 300), lambda _: None)
    until(scheduler, token2wav, True)
    token2wav.finish(True)
    scheduler._advance_chunks()
    scheduler.open(request("whole", 3, stream=False), lambda _: None)
    until(scheduler, token2wav, False)
    before = len(lm.rows[0].tokens)
    scheduler.step()
    assert len(lm.rows[0].tokens) == before
    clock.pass_by(0.8)
    scheduler.step()
    assert len(lm.rows[0].tokens) == before + 1


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
    assert scheduler._chunks.choose(scheduler._ready(), streaming=True) == [whole]
    clock.pass_by(waited)
    while not stream.take.ready:
        scheduler._advance_lm()
    assert scheduler._chunks.choose(scheduler._ready(), streaming=True) == [
        (stream, whole)[next_one]
    ]


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


def test_one_call_of_later_chunks_at_a_time() -> None:
    scheduler, token2wav, _ = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    token2wav.rows = 2
    heard: list[Heard] = [[] for _ in range(4)]
    sessions = [
        scheduler.open(request(f"{number}", 5, stream=False), found.append)
        for number, found in enumerate(heard)
    ]
    until(scheduler, token2wav, False)
    for _ in range(5):
        scheduler.step()
    assert token2wav.calls == [["0", "1"]]
    clock.pass_by(3.0)
    assert [session.slack(clock()) for session in sessions] == [-2.5] * 4, "since they are ready"
    token2wav.finish(False)
    scheduler.step()
    scheduler.step()
    assert token2wav.calls == [["0", "1"], ["2", "3"]]
    assert [len(found) for found in heard] == [1, 1, 0, 0]
    clock.pass_by(1.0)
    token2wav.finish(False)
    scheduler.step()
    assert [len(found) for found in heard] == [1, 1, 1, 1]
    assert scheduler.stats().token2wav_seconds == 4.0
    scheduler.check_idle()


def test_another_call_is_queued_when_the_device_has_all_of_the_first() -> None:
    scheduler, token2wav, _ = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    token2wav.rows = 1
    heard: list[Heard] = [[] for _ in range(3)]
    for number, found in enumerate(heard):
        scheduler.open(request(f"{number}", 5, stream=False), found.append)
    until(scheduler, token2wav, False)
    token2wav.queued[False][0].launched = True
    for _ in range(8):
        scheduler.step()
    assert token2wav.calls == [["0"], ["1"]], "one, not all of them"
    for count in (1, 2, 3):
        clock.pass_by(1.0)
        token2wav.finish(False)
        scheduler.step()
        assert sum(len(found) for found in heard) == count
        scheduler.step()
    assert scheduler.stats().token2wav_seconds == 3.0, "each second is counted once"
    scheduler.check_idle()


def test_batches_of_whole_texts_share_the_device_while_nobody_streams() -> None:
    scheduler, token2wav, _ = slow()
    token2wav.rows, token2wav.whole_batches = 1, 2
    heard: list[Heard] = [[] for _ in range(4)]
    for number, found in enumerate(heard):
        scheduler.open(request(f"{number}", 5, stream=False), found.append)
    for _ in range(12):
        scheduler.step()
    assert token2wav.calls == [["0"], ["1"]], "two, and no third while the device has neither"
    token2wav.queued[False][0].launched = True
    scheduler.step()
    assert token2wav.calls == [["0"], ["1"], ["2"]]
    token2wav.queued[False][1].launched = True
    scheduler.step()
    assert len(token2wav.calls) == 3, "one is queued behind the two"
    for _ in range(3):
        token2wav.finish(False)
        scheduler.step()
    while False in token2wav.queued:
        token2wav.finish(False)
        scheduler.step()
    assert [len(found) for found in heard] == [1] * 4
    scheduler.check_idle()


def test_somebody_who_streams_shares_the_device_with_one_batch_of_whole_texts() -> None:
    scheduler, token2wav, _ = slow()
    token2wav.rows, token2wav.whole_batches = 1, 2
    scheduler.open(request("stream", 200), lambda _: None)
    for number in range(2):
        scheduler.open(request(f"{number}", 5, stream=False), lambda _: None)
    for _ in range(12):
        scheduler.step()
    assert token2wav.calls == [["0"]]


def test_a_batch_of_whole_texts_goes_on_behind_one_that_waits() -> None:
    """Whoever is launched step by step must be asked to go on."""
    scheduler, token2wav, _ = slow()
    token2wav.rows, token2wav.whole_batches = 1, 2
    for number in range(2):
        scheduler.open(request(f"{number}", 5, stream=False), lambda _: None)
    for _ in range(8):
        scheduler.step()
    polls = [hummed.polls for hummed in token2wav.queued[False]]
    scheduler.step()
    assert [hummed.polls for hummed in token2wav.queued[False]] == [count + 1 for count in polls]


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
