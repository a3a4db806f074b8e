"""Torch has all its threads while nobody waits for one of them, and one otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cosyserve.engine.workers.threads import (
    LATE,
    LOOK_AGAIN_SECONDS,
    LOOK_SECONDS,
    TRUSTED,
    Threads,
)


class Clock:
    """Time passes while somebody looks at it: what is measured takes `step`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    before = torch.get_num_threads()
    yield Clock()
    torch.set_num_threads(before)


def look(threads: Threads, clock: Clock, step: float) -> int:
    """After a while, something having taken so long -> the threads that torch has then."""
    clock.now += 2 * LOOK_AGAIN_SECONDS
    clock.step = step
    threads.adjust()
    assert torch.get_num_threads() == threads.count
    return threads.count


def test_one_that_lost_its_core_leaves_the_others_at_once(clock: Clock) -> None:
    threads = Threads(3, clock)
    assert torch.get_num_threads() == 3
    quick, late = 0.9 * LATE * threads._share, 1.1 * LATE * threads._share
    assert look(threads, clock, quick) == 3
    assert look(threads, clock, late) == 1
    assert {look(threads, clock, quick) for _ in range(TRUSTED - 1)} == {1}
    assert look(threads, clock, quick) == 3
    assert look(threads, clock, late) == 1
    look(threads, clock, quick)
    assert look(threads, clock, late) == 1
    assert {look(threads, clock, quick) for _ in range(TRUSTED - 1)} == {1}  # all anew


def test_it_looks_only_now_and_then(clock: Clock) -> None:
    threads = Threads(2, clock)
    late = 2 * LATE * threads._share
    assert look(threads, clock, 0.0) == 2
    clock.step = late
    for _ in range(int(LOOK_SECONDS / late) - 1):
        threads.adjust()
        assert torch.get_num_threads() == 2
    assert look(threads, clock, late) == 1


def test_one_thread_is_left_alone(clock: Clock) -> None:
    torch.set_num_threads(1)
    threads = Threads(1, clock)
    assert look(threads, clock, 1e9) == 1
    torch.set_num_threads(2)  # as somebody else wants it
    threads.adopt()
    assert torch.get_num_threads() == 2


def test_another_thread_has_as_many_once_it_adopts_them(clock: Clock) -> None:
    threads = Threads(3, clock)
    late = 2 * LATE * threads._share

    def adopted() -> int:
        threads.adopt()
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(adopted).result() == 3
        assert look(threads, clock, late) == 1
        assert other.submit(torch.get_num_threads).result() == 3  # which are each thread's own
        assert other.submit(adopted).result() == 1
