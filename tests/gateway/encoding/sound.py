"""What tests of encoders encode, and how they compare."""

from __future__ import annotations

import numpy as np

from cosyserve.audio import AudioFormat, decode

SECOND = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)


def comparable(kind: AudioFormat, data: bytes) -> bytes:
    """Each Ogg stream has a number of its own, so that its sound is compared."""
    return decode(data).samples.tobytes() if kind == AudioFormat.OPUS else data
