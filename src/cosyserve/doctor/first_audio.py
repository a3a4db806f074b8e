"""How long a listener waits for the first audio, here and now."""

from __future__ import annotations

import time

from cosyserve.doctor import troubles
from cosyserve.doctor.finding import Finding
from cosyserve.errors import CosyError

SENTENCE = "How long does it take until somebody hears this?"
SLOW_SECONDS = 1.0


def first_audio(model: str, device: str) -> Finding:
    """The second of two streams in the model's default voice: the first one warms up."""
    from cosyserve.engine.tts import load

    try:
        tts = load(model, device=device)
        seconds = 0.0
        for _ in range(2):
            started = time.monotonic()
            next(iter(tts.stream(SENTENCE)))
            seconds = time.monotonic() - started
    except CosyError as error:
        return Finding("first audio", "no speech", False, str(error))
    advice = troubles.SLOW_AUDIO.fix if seconds > SLOW_SECONDS else ""
    return Finding(
        "first audio", f"after {1000 * seconds:.0f} ms", None if advice else True, advice
    )
