"""Weights and inputs that anyone can make again, from a name, a shape and a salt.

Knows no model: names of parameters alone decide how large their values are.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

GAIN_OF_SUFFIX = {
    "f0_predictor.classifier.weight": 700.0,
    "llm_decoder.weight": 4.0,
    "conv_post.parametrizations.weight.original0": 1.8,
    "project_down.weight": 0.3,
}
GAIN_OF_XVECTOR = 1.5


def u(name: str, shape: tuple[int, ...], salt: int = 0) -> npt.NDArray[np.float64]:
    """Uniform in [-1, 1), drawn in C order by a generator that belongs to the name."""
    seed = (zlib.crc32(name.encode()) + salt) % 2**32
    draws = np.random.RandomState(seed).random_sample(math.prod(shape))
    return (2.0 * draws - 1.0).reshape(shape)


def ints(name: str, shape: tuple[int, ...], high: int, salt: int = 0) -> npt.NDArray[np.int64]:
    """Uniform in 0 .. high - 1."""
    return np.floor((u(name, shape, salt) + 1.0) * 0.5 * high).astype(np.int64)


def fill(key: str, shape: tuple[int, ...], salt: int = 0) -> npt.NDArray[Any]:
    """The value of the parameter `key`."""
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    centre, spread = _centre_and_spread(key, shape)
    return (centre + spread * u(key, shape, salt)).astype(np.float32)


def _centre_and_spread(key: str, shape: tuple[int, ...]) -> tuple[float, float]:
    gain = _gain(key)
    if key.endswith(".alpha"):
        return 1.0, 0.5
    if key.endswith("running_var"):
        return 1.0, 0.4
    if key.endswith("original0"):
        return gain * 0.6, gain * 0.2
    if key.endswith(("embedding.weight", "embed_tokens.weight")):
        return 0.0, 1.0
    if len(shape) == 1 and key.endswith("weight"):
        return 1.0, 0.2
    if len(shape) <= 1:
        return 0.0, 0.1
    return 0.0, gain * math.sqrt(3.0 / max(1, math.prod(shape[1:])))


def _gain(key: str) -> float:
    by_suffix = (gain for suffix, gain in GAIN_OF_SUFFIX.items() if key.endswith(suffix))
    return next(by_suffix, GAIN_OF_XVECTOR if key.startswith("xvector.") else 1.0)
