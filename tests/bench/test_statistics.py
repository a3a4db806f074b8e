"""Numbers that stand for many, for all many."""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.bench.statistics import distribution, share_within

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


def test_known_percentiles() -> None:
    spread = distribution([float(n) for n in range(101)])
    assert spread is not None
    assert astuple(spread) == pytest.approx((50, 50, 90, 95, 99))


def test_nothing_has_no_distribution() -> None:
    assert distribution([]) is None
    assert share_within([], 0.1) is None


@given(values)
@settings(deadline=None, max_examples=50)
def test_percentiles_rise_within_the_values(values: list[float]) -> None:
    spread = distribution(values)
    assert spread is not None
    points = [min(values), spread.p50, spread.p90, spread.p95, spread.p99, max(values)]
    assert all(a <= b + 1e-6 for a, b in pairwise(points))
    assert min(values) - 1e-6 <= spread.mean <= max(values) + 1e-6


@given(values)
@settings(deadline=None, max_examples=50)
def test_order_means_nothing(values: list[float]) -> None:
    a, b = distribution(values), distribution(sorted(values))
    assert a is not None
    assert b is not None
    assert astuple(a) == pytest.approx(astuple(b))


@given(values, st.floats(0, 1e6), st.floats(0, 1e6))
@settings(deadline=None, max_examples=50)
def test_a_wider_limit_holds_no_fewer(values: list[float], one: float, other: float) -> None:
    low, high = (share_within(values, limit) for limit in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= 1
    assert share_within(values, max(values)) == 1


def test_a_limit_holds_what_equals_it() -> None:
    assert share_within([0.05, 0.0501], 0.05) == 0.5
