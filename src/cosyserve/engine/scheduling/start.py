"""A scheduler that is ready, with as many slots as the memory holds."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from functools import partial

import torch

from cosyserve.checkpoints.model import Model
from cosyserve.choices import MAX_WAIT_SECONDS, MAX_WAITING
from cosyserve.engine.compute.profile import LATENCY, Profile
from cosyserve.engine.compute.warm_up import OutOfGPUMemoryError
from cosyserve.engine.scheduling.scheduler import LMLike, Scheduler

log = logging.getLogger(__name__)


def start_scheduler(
    model: Model,
    lm: LMLike | None = None,
    *,
    slots: int = 0,
    max_waiting: int = MAX_WAITING,
    max_wait: float = MAX_WAIT_SECONDS,
    profile: Profile = LATENCY,
) -> Scheduler:
    """The scheduler of a model, warmed up.

    0 slots are as many as the profile has; where they don't fit on the GPU, half as many, and so
    on. Slots that were asked for are an error when they don't fit.
    """
    make = partial(
        Scheduler.of, model, lm, max_waiting=max_waiting, max_wait=max_wait, profile=profile
    )
    count = slots or profile.slots_on(model.device)
    while True:
        try:
            return _warm(make, count)
        except OutOfGPUMemoryError:
            if slots or count == 1:
                raise
        gc.collect()  # graphs of the one before hold the memory of the next
        torch.cuda.empty_cache()
        log.warning("the GPU has no memory for %d sessions: %d are tried", count, count // 2)
        count //= 2


def _warm(make: Callable[..., Scheduler], slots: int) -> Scheduler:
    scheduler = make(slots=slots)
    scheduler.warm_up()
    return scheduler
