"""What a call adds to the memory of a process at its worst, mapped files included. Linux only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

PEAK_RESET = Path("/proc/self/clear_refs")


def peak_of(call: Callable[..., object], *arguments: Any, after: tuple[Any, ...] = ()) -> int:
    """Bytes, in a child process. `after`: arguments of a first call that is not measured, for what
    is loaded on first use."""
    # No `Pool`, which ends its processes by SIGTERM: they may have inherited somebody's handler.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(_measure, call, arguments, after).result()


def _measure(call: Callable[..., object], arguments: Any, after: tuple[Any, ...]) -> int:
    if after:
        call(*after)
    before = _status("VmRSS")
    PEAK_RESET.write_text("5")  # forgets the peak of the past
    kept = call(*arguments)
    peak = _status("VmHWM") - before
    del kept
    return peak


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) << 10
