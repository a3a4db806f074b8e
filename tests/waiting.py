"""How long tests wait for what must come: long enough for a machine that is busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds. What is right comes in milliseconds; what is wrong takes longer than this, or for ever.
PATIENCE = 20.0
# A process has to import torch and to load a model.
START_PATIENCE = 150.0


def wait_until(
    condition: Callable[[], object], what: str = "it never came", seconds: float = PATIENCE
) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.005)


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """As `wait_until`, while others go on."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
