"""When requests are sent: one after another, or as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cosyserve.bench.items import Item
from cosyserve.bench.sample import Sample
from cosyserve.errors import InputError

Send = Callable[[Item], Awaitable[Sample]]


@dataclass(frozen=True)
class ClosedLoop:
    """A number of tasks share the items out; each sends its own one after another."""

    tasks: int

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise InputError(f"the concurrency must be at least 1, got {self.tasks}")

    async def run(self, items: Sequence[Item], send: Send) -> list[Sample]:
        async def one_after_another(mine: Sequence[Item]) -> list[Sample]:
            return [await send(item) for item in mine]

        shares = (items[n :: self.tasks] for n in range(min(self.tasks, len(items))))
        answers = await asyncio.gather(*map(one_after_another, shares))
        return [sample for answer in answers for sample in answer]


@dataclass(frozen=True)
class OpenLoop:
    """Requests at random times, `rate` of them a second, whether others are answered or not."""

    rate: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InputError(f"the rate must be more than 0 requests a second, got {self.rate:g}")
        if self.seed < 0:
            raise InputError(f"the seed of arrivals must be at least 0, got {self.seed}")

    async def run(self, items: Sequence[Item], send: Send) -> list[Sample]:
        async def when_due(item: Item, due: float) -> Sample:
            await asyncio.sleep(due)
            return await send(item)

        dues = poisson_times(self.rate, len(items), self.seed)
        return await asyncio.gather(*map(when_due, items, dues))


Load = ClosedLoop | OpenLoop


def poisson_times(rate: float, count: int, seed: int) -> list[float]:
    """Seconds at which `count` arrivals of a Poisson process come."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return [float(time) for time in np.cumsum(gaps)]
