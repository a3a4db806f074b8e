"""Numbers that stand for many: mean, percentiles, variance, continuity.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Distribution:
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Percentiles are interpolated between the two nearest values. No values: None."""
    if not values:
        return None
    percentiles = np.percentile(values, (50, 90, 95, 99)).tolist()
    return Distribution(float(np.mean(values)), *percentiles)


def variance(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return float(np.var(values))


def share_within(values: Sequence[float], limit: float) -> float | None:
    """The share of values that are at most `limit`."""
    if not values:
        return None
    return sum(value <= limit for value in values) / len(values)
