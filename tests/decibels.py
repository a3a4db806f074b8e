"""How far two waveforms are apart, where random weights turn float32's last digits into phases."""

from __future__ import annotations

import numpy as np

from cosyserve.contracts import Floats


def decibels(found: Floats, expected: Floats) -> float:
    """The power of what differs, against that of what is expected."""
    assert len(found) == len(expected)
    error = np.square(found - expected).mean() / np.square(expected).mean()
    return float(10 * np.log10(error + 1e-20))
