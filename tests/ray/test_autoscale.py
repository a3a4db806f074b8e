"""How many workers a cluster has for so many requests."""

from __future__ import annotations

import pytest

from cosyserve.errors import InputError
from cosyserve.ray.autoscale import Autoscaler


def test_another_worker_comes_when_half_of_all_slots_are_in_use() -> None:
    scale = Autoscaler(1, 4, shrink_seconds=10)
    needs = {0: 1, 1: 1, 4: 1, 5: 2, 8: 2, 9: 3, 17: 4, 1000: 4}
    for second, (requests, workers) in enumerate(needs.items()):
        assert scale.wanted(requests, slots=8, now=100.0 * second) == workers


def test_workers_stay_as_long_as_they_may_be_needed_again() -> None:
    scale = Autoscaler(1, 8, shrink_seconds=10)
    loads = [(0, 32, 8), (4, 12, 8), (9, 4, 8), (11, 4, 3), (14, 4, 3), (15, 4, 1), (16, 16, 4)]
    for now, requests, workers in loads:
        assert scale.wanted(requests, slots=8, now=float(now)) == workers, now


def test_before_any_worker_is_ready_there_are_as_many_as_always() -> None:
    assert Autoscaler(2, 4).wanted(100, slots=0, now=0.0) == 2


def test_fewest_above_most_names_both_settings() -> None:
    with pytest.raises(InputError, match="RAY_MIN_WORKERS is 3, more than COSYSERVE_RAY_MAX_WORK"):
        Autoscaler(3, 2)
