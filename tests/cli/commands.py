"""Commands of a test: what they are given, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NOISE = np.random.default_rng(0).standard_normal(3 * 24_000).astype(np.float32) * 0.1


class Run(NamedTuple):
    stdout: bytes
    stderr: str


Command = Callable[..., Run]
