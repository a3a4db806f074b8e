"""Numbers go to a device through memory that is used again, but never before they have arrived."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyserve.engine.compute.graphs.device_queue import (
    ALIGNED,
    STAGED,
    DeviceQueue,
    Mark,
    Staging,
)

HALF = 4 * ALIGNED


class Copies:
    """A queue that copies late: when somebody waits for it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[torch.Tensor, list[int]]] = []
        self.arrived = 0

    def copy(self, source: torch.Tensor, expected: list[int]) -> None:
        self.waiting.append((source, expected))

    def mark(self) -> Mark:
        copies, before = self, len(self.waiting) + self.arrived

        class Point(Mark):
            def wait(self) -> None:
                copies.run(before)

        return Point(None)

    def run(self, until: int) -> None:
        while self.waiting and self.arrived < until:
            source, expected = self.waiting.pop(0)
            assert source.flatten().tolist() == expected
            self.arrived += 1


def test_what_is_written_arrives_however_late_it_is_copied() -> None:
    copies = Copies()
    staging = Staging(torch.empty(2, HALF, dtype=torch.uint8), copies.mark)
    random = np.random.default_rng(0)
    for number in range(200):
        values = random.integers(-(1 << 60), 1 << 60, random.integers(1, HALF // 8 + 1))
        copies.copy(staging.pinned(torch.from_numpy(values)), values.tolist())
        assert len(copies.waiting) <= 2 * HALF // ALIGNED, number
    copies.run(200)
    assert copies.arrived == 200


@pytest.mark.parametrize("tokens", [3600, 3900, 4096])
def test_a_batch_does_not_wait_for_the_one_before_it(tokens: int) -> None:
    """That one is still being computed. The numbers are those of the largest packs."""
    batch = 0

    class Point(Mark):
        def __init__(self) -> None:
            super().__init__(None)
            self.batch = batch

        def wait(self) -> None:
            assert batch - self.batch >= 2

    staging = Staging(torch.empty(2, STAGED // 2, dtype=torch.uint8), Point)
    for _ in range(12):
        batch += 1
        for shape in ((4 * 64 + 4096 + 6 * 64,), (tokens, 3), (4, 64)):
            staging.pinned(torch.zeros(shape, dtype=torch.long))


def test_numbers_keep_their_shape_and_type() -> None:
    staging = Staging(torch.empty(2, HALF, dtype=torch.uint8), lambda: Mark(None))
    for numbers in (torch.arange(6).view(2, 3), torch.rand(3, dtype=torch.float64)):
        staged = staging.pinned(numbers)
        assert staged.dtype is numbers.dtype
        torch.testing.assert_close(staged, numbers)


@pytest.mark.parametrize(
    "values", [[1, 2, 3], (1.5, 2.5, 1e300), np.arange(3), [1 << 62, -1, 0]], ids=str
)
def test_a_queue_writes_what_it_is_given(values: object) -> None:
    dtype = torch.float64 if isinstance(values, tuple) else torch.long
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = torch.zeros(3, dtype=dtype, device=device)
    queue = DeviceQueue(device)
    with queue.use():
        queue.write(target, values)  # type: ignore[arg-type]
    queue.wait()
    assert target.tolist() == list(values)  # type: ignore[call-overload]


def test_an_integer_that_is_too_large_is_an_error() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(OverflowError):
        DeviceQueue(device).write(torch.zeros(2, dtype=torch.long, device=device), [1, 1 << 63])
