"""When requests are sent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.bench.items import Item
from cosyserve.bench.load import ClosedLoop, OpenLoop, poisson_times
from cosyserve.bench.sample import Sample
from cosyserve.errors import InputError


class Crowd:
    """Answers after a while, and counts who is waiting."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.inside = self.most_inside = 0
        self.order: list[str] = []

    async def send(self, item: Item) -> Sample:
        self.order.append(item.id)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await asyncio.sleep(self.seconds)
        self.inside -= 1
        return Sample(item.id, 0.0, self.seconds, ())


def items(count: int) -> list[Item]:
    return [Item(str(n), "") for n in range(count)]


@given(st.integers(1, 6), st.integers(1, 20))
@settings(deadline=None, max_examples=25)
def test_a_closed_loop_keeps_its_number_busy(tasks: int, count: int) -> None:
    crowd = Crowd(0.0)
    samples = asyncio.run(ClosedLoop(tasks).run(items(count), crowd.send))
    assert sorted(int(sample.id) for sample in samples) == list(range(count))
    assert crowd.most_inside == min(tasks, count)


def test_a_loop_has_no_more_tasks_than_items() -> None:
    crowd = Crowd(0.0)
    assert len(asyncio.run(ClosedLoop(10**12).run(items(2), crowd.send))) == 2


def test_a_task_sends_its_items_one_after_another() -> None:
    crowd = Crowd(0.0)
    asyncio.run(ClosedLoop(1).run(items(5), crowd.send))
    assert crowd.order == ["0", "1", "2", "3", "4"]


def test_an_open_loop_waits_for_nobody() -> None:
    crowd = Crowd(0.3)
    samples = asyncio.run(OpenLoop(rate=200).run(items(20), crowd.send))
    assert crowd.order == [str(n) for n in range(20)]
    assert crowd.most_inside == 20
    assert len(samples) == 20


@given(st.floats(0.1, 1000), st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_arrivals_are_those_of_a_poisson_process(rate: float, seed: int) -> None:
    times = np.array(poisson_times(rate, 4000, seed))
    gaps = np.diff(times, prepend=0.0)
    assert (gaps >= 0).all()
    assert gaps.mean() * rate == pytest.approx(1, abs=0.1)
    assert gaps.std() * rate == pytest.approx(1, abs=0.15)
    assert (gaps * rate > 1).mean() == pytest.approx(np.exp(-1), abs=0.05)


def test_the_seed_decides_the_arrivals() -> None:
    assert poisson_times(5, 50, seed=1) == poisson_times(5, 50, seed=1)
    assert poisson_times(5, 50, seed=1) != poisson_times(5, 50, seed=2)


def test_impossible_loads_are_refused() -> None:
    with pytest.raises(InputError, match="concurrency must be at least 1, got 0"):
        ClosedLoop(0)
    with pytest.raises(InputError, match="rate must be more than 0"):
        OpenLoop(0.0)
    with pytest.raises(InputError, match="seed of arrivals must be at least 0, got -1"):
        OpenLoop(1.0, seed=-1)
