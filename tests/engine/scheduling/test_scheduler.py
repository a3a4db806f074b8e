"""A scheduler: who goes next, who waits, who leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.contracts import AudioChunk
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.errors import CosyError, OverloadError
from tests.engine.mocks import mock_scheduler, plan, request

Heard = list[AudioChunk | CosyError]


def run(scheduler: Scheduler, steps: int = 10_000) -> None:
    for _ in range(steps):
        if not scheduler.step():
            return
    raise AssertionError("never at rest")


def seconds(heard: Heard) -> float:
    return sum(len(c.samples) for c in heard if isinstance(c, AudioChunk)) / 24_000


def test_sessions_join_and_leave_and_each_gets_its_own() -> None:
    scheduler, _, lm, _ = mock_scheduler()
    heard: dict[str, Heard] = {}
    for name, tokens in (("a", 30), ("b", 100), ("c", 7)):
        heard[name] = []
        scheduler.open(request(name, tokens), heard[name].append)
        scheduler.step()
    run(scheduler)
    assert {name: seconds(found) * 25 for name, found in heard.items()} == {
        "a": pytest.approx(30),
        "b": pytest.approx(100),
        "c": pytest.approx(7),
    }
    assert all(found[-1].finish == "stop" for found in heard.values())
    assert lm.rows == []
    scheduler.check_idle()


def test_the_first_and_the_last_chunk_say_when_stages_were_passed() -> None:
    scheduler, _, _, clock = mock_scheduler(slots=1)
    heard: dict[str, Heard] = {"a": [], "b": []}
    for name in heard:
        session = scheduler.enter(request(name, 200), heard[name].append)
        clock.pass_by(0.5)
        scheduler.begin(session, plan(request(name, 200)))
        clock.pass_by(0.25)
    while not scheduler.idle:
        scheduler.step()
        clock.pass_by(0.01)
    for found in heard.values():
        first, *between, last = (c.timeline for c in found if isinstance(c, AudioChunk))
        assert between
        assert not any(between)
        assert first
        assert last
        assert first.planned == last.planned == pytest.approx(0.5)
        assert 0.5 < first.admitted < first.first_tokens <= first.sent
        assert first.drawn is None
        assert last.drawn
        assert first.sent < last.drawn <= last.sent
        assert (first.admitted, first.first_tokens) == (last.admitted, last.first_tokens)
    waited = heard["b"][-1].timeline.admitted - heard["b"][-1].timeline.planned
    assert waited > heard["a"][-1].timeline.sent - 1.5  # for the only slot


def test_first_chunks_go_first() -> None:
    scheduler, token2wav, _, _ = mock_scheduler()
    scheduler.open(request("old", 200), lambda _: None)
    while not token2wav.calls:
        scheduler.step()
    token2wav.calls.clear()
    scheduler.open(request("new", 26), lambda _: None)
    while len(token2wav.calls) < 2:
        scheduler.step()
    run(scheduler)
    first_new = next(i for i, names in enumerate(token2wav.calls) if "new" in names)
    assert token2wav.calls[first_new] == ["new"]  # not in one call with later chunks


def test_later_chunks_go_by_what_listeners_still_have() -> None:
    scheduler, _, _, clock = mock_scheduler()
    sessions = {n: scheduler.open(request(n, 60), lambda _: None) for n in ("rich", "poor")}
    while not all(session.playback.chunks for session in sessions.values()):
        scheduler.step()
    clock.now = 0.5
    sessions["rich"].playback.samples += 24_000
    due = []
    while len(due) < 2:
        scheduler._admit()
        scheduler._advance_lm()
        due = scheduler._chunks.choose(scheduler._ready(), streaming=True)
    assert [session.utterances[0].state.name for session in due] == ["poor", "rich"]


def test_cancelling_frees_everything_at_once() -> None:
    scheduler, _, lm, _ = mock_scheduler(slots=2)
    heard: Heard = []
    running = scheduler.open(request("a", 500), heard.append)
    waiting = [scheduler.open(request("b", 5), heard.append) for _ in range(3)]
    for _ in range(3):
        scheduler.step()
    assert len(lm.rows) == 2
    for session in (running, *waiting):
        scheduler.cancel(session)
    scheduler.check_idle()
    before = len(heard)
    run(scheduler)
    assert len(heard) == before


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 80)), min_size=1, max_size=12))
def test_whoever_leaves_whenever_nothing_is_left(clients: list[tuple[int, int]]) -> None:
    scheduler, _, _, _ = mock_scheduler(slots=3, waiting=20)
    opened = [
        (scheduler.open(request(str(i), tokens), lambda _: None), leaves)
        for i, (tokens, leaves) in enumerate(clients)
    ]
    for step in range(400):
        scheduler.step()
        for session, leaves in opened:
            if leaves == step:
                scheduler.cancel(session)
    scheduler.check_idle()


def test_a_full_queue_refuses_at_once() -> None:
    scheduler, _, _, _ = mock_scheduler(slots=1, waiting=2)
    for _ in range(3):  # one runs, two wait
        scheduler.open(request("a", 5), lambda _: None)
    with pytest.raises(OverloadError) as refused:
        scheduler.open(request("b", 5), lambda _: None)
    assert refused.value.retry_after > 0
    run(scheduler)
    scheduler.open(request("c", 5), lambda _: None)


def test_nobody_joins_a_queue_that_does_not_move() -> None:
    """Those inside may be spoken to slowly, and hold their slots meanwhile."""
    scheduler, _, _, clock = mock_scheduler(slots=1, waiting=50)
    scheduler.open(request("a", 500), lambda _: None)
    scheduler.step()
    scheduler.open(request("b", 5), lambda _: None)
    clock.pass_by(0.9)
    scheduler.open(request("c", 5), lambda _: None)
    clock.pass_by(0.2)
    with pytest.raises(OverloadError) as refused:
        scheduler.open(request("d", 5), lambda _: None)
    assert refused.value.retry_after == pytest.approx(1.1, abs=0.05)


def test_nobody_waits_longer_than_allowed() -> None:
    """A queue may have room for more than can be served in good time."""
    scheduler, _, _, clock = mock_scheduler(slots=1, waiting=50)
    scheduler._admission.max_wait = 10.0

    def speak(sessions: int) -> None:
        for _ in range(sessions):
            scheduler.open(request("a", 5), lambda _: clock.pass_by(3.0))
        run(scheduler)

    for _ in range(20):  # while nobody waits, the pace is that of those who come
        speak(1)
    for _ in range(12):
        scheduler.open(request("a", 5), lambda _: clock.pass_by(3.0))
    while len(scheduler.waiting) > 6:
        scheduler.step()
    with pytest.raises(OverloadError) as refused:
        scheduler.open(request("b", 5), lambda _: None)
    assert refused.value.retry_after == pytest.approx(3.0 * len(scheduler.waiting), rel=0.2)
    while 3.0 * len(scheduler.waiting) > 10.0:
        scheduler.step()
    scheduler.open(request("c", 5), lambda _: None)


def test_nobody_is_refused_a_free_slot() -> None:
    """However slow others were, and however many come in the moment before their plans are made."""
    scheduler, _, _, clock = mock_scheduler(slots=4, waiting=50)
    for _ in range(12):
        scheduler.open(request("a", 5), lambda _: clock.pass_by(3.0))
    run(scheduler)
    for _ in range(4 + 1):
        scheduler.enter(request("b", 5), lambda _: None)
    with pytest.raises(OverloadError):  # behind one who waits already
        scheduler.enter(request("b", 5), lambda _: None)


def test_nobody_is_starved() -> None:
    scheduler, _, _, _ = mock_scheduler(slots=2, waiting=50)
    order: list[str] = []
    for i in range(10):
        scheduler.open(request(str(i), 20), lambda c, i=i: c.final and order.append(str(i)))
    run(scheduler)
    assert order == [str(i) for i in range(10)]


def test_a_long_text_is_spoken_in_order() -> None:
    scheduler, _, _, _ = mock_scheduler()
    heard: Heard = []
    scheduler.open(request("a", "10+20+5"), heard.append)  # type: ignore[arg-type]
    run(scheduler)
    assert [c.tokens for c in heard if isinstance(c, AudioChunk)] == [10, 20, 5]
    assert [c.finish for c in heard if isinstance(c, AudioChunk)] == [None, None, "stop"]


@pytest.mark.parametrize("planned_first", ["early", "late"])
def test_sessions_run_in_the_order_of_arrival_whichever_plan_is_made_first(
    planned_first: str,
) -> None:
    scheduler, token2wav, _, _ = mock_scheduler(slots=1)
    scheduler.open(request("running", 30), lambda _: None)
    scheduler.step()
    asked = {name: request(name, 5) for name in ("early", "late")}
    sessions = {name: scheduler.enter(asked[name], lambda _: None) for name in asked}
    for name in sorted(asked, key=lambda name: name != planned_first):
        scheduler.begin(sessions[name], plan(asked[name]))
    run(scheduler)
    order = [names[0] for names in token2wav.calls if names[0] != "running"]
    assert order == ["early", "late"]


def test_a_session_without_a_plan_lets_others_go_ahead() -> None:
    scheduler, token2wav, _, _ = mock_scheduler(slots=1)
    early = scheduler.enter(request("early", 5), lambda _: None)
    scheduler.open(request("late", 5), lambda _: None)
    while scheduler.step():
        pass
    assert token2wav.calls == [["late"]]
    scheduler.begin(early, plan(early.request))
    run(scheduler)
    assert token2wav.calls == [["late"], ["early"]]
