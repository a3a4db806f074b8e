"""First chunks go first: before later ones and whole texts, longer under load."""

from __future__ import annotations

import pytest

from cosyserve.contracts import AudioChunk
from cosyserve.engine.compute.limits import POLL_SECONDS
from tests.engine.mocks import (
    Clock,
    request,
)
from tests.engine.scheduling.slow_token2wav import Heard, slow, until


def test_first_chunks_are_longer_under_load() -> None:
    scheduler, token2wav, _ = slow()
    clock = scheduler.clock
    assert isinstance(clock, Clock)
    scheduler.open(request("slow", 3, stream=False), lambda _: None)
    until(scheduler, token2wav, False)
    clock.pass_by(0.2)
    token2wav.finish(False)
    scheduler.step()
    first = []
    for _ in range(2):
        heard: Heard = []
        session = scheduler.open(request("new", 200), heard.append)
        until(scheduler, token2wav, True)
        token2wav.finish(True)
        scheduler.step()
        (chunk,) = heard
        assert isinstance(chunk, AudioChunk)
        first.append(chunk.tokens)
        scheduler.cancel(session)
        clock.pass_by(1.0)
    assert first == [50, 25], "the second comes when there is no load any more"


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


@pytest.mark.parametrize(("drawn", "taken"), [(28, 25), (53, 50), (60, 50), (78, 75), (150, 75)])
def test_a_first_chunk_that_had_to_wait_takes_more(drawn: int, taken: int) -> None:
    scheduler, token2wav, lm = slow()
    scheduler.open(request("first", 60), lambda _: None)
    until(scheduler, token2wav, True)
    heard: Heard = []
    waiting = scheduler.open(request("waiting", 300), heard.append)
    scheduler.step()
    while len(waiting.utterances[0].generation.tokens) < drawn:
        lm.step()
    token2wav.finish(True)
    scheduler._advance_chunks()
    scheduler._advance_chunks()
    assert len(waiting.due()) == taken + 3
    token2wav.finish(True)
    scheduler._advance_chunks()
    (chunk,) = heard
    assert isinstance(chunk, AudioChunk)
    assert chunk.tokens == taken


def test_a_short_text_that_had_to_wait_is_one_chunk() -> None:
    scheduler, token2wav, _ = slow()
    scheduler.open(request("first", 60), lambda _: None)
    until(scheduler, token2wav, True)
    heard: Heard = []
    short = scheduler.open(request("short", 60), heard.append)
    scheduler.step()
    while short.utterances[0].generation.finish is None:
        scheduler._advance_lm()
    while not scheduler.idle:
        for urgent in list(token2wav.queued):
            token2wav.finish(urgent)
        scheduler.step()
    assert [(chunk.tokens, chunk.finish) for chunk in heard if isinstance(chunk, AudioChunk)] == [
        (60, "stop")
    ]


def test_only_a_listener_who_is_alone_and_hears_nothing_yet_is_looked_after_without_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cosyserve.engine.scheduling.scheduler.time.sleep", slept.append)
    scheduler, token2wav, _ = slow()
    session = scheduler.open(request("alone", 25), lambda _: None)
    until(scheduler, token2wav, True)
    while not slept:
        scheduler.step()
    assert set(slept) == {0.0}
    other = scheduler.open(request("other", 25), lambda _: None)
    while slept[-1] == 0.0:
        scheduler.step()
    assert slept[-1] == POLL_SECONDS
    for one in (session, other):
        scheduler.cancel(one)
