"""The scheduler of a model: as it is, or warmed up with as many slots as the memory holds."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType

import torch

from cosyserve.checkpoints.model import Model
from cosyserve.choices import MAX_WAIT_SECONDS, MAX_WAITING
from cosyserve.contracts import Voice
from cosyserve.engine.compute.generation import LMLike
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.profile import LATENCY, Profile
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.compute.warm_up import OutOfGPUMemoryError, oom_as_error, warm_up
from cosyserve.engine.scheduling.plan import plan
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session_chunks import by_name
from cosyserve.errors import VoiceError
from cosyserve.voices.fits import check_fits
from cosyserve.voices.store import DEFAULT

NOBODY: Mapping[str, Voice] = MappingProxyType({})

log = logging.getLogger(__name__)


def scheduler_of(
    model: Model,
    lm: LMLike | None = None,
    token2wavs: Sequence[Token2Wav] = (),
    *,
    slots: int = 0,
    max_waiting: int = MAX_WAITING,
    max_wait: float = MAX_WAIT_SECONDS,
    profile: Profile = LATENCY,
) -> Scheduler:
    """The scheduler of a model; 0 slots are as many as the profile has. Another LM may draw the
    tokens: then the model needs no weights of one."""
    slots = slots or profile.slots_on(model.device)
    with oom_as_error(slots):
        ready = token2wavs or token2wavs_of(model, slots, profile)
        lm = lm or LMRunner(model.need_lm()[0], slots, MAX_POSITIONS)
    return Scheduler(
        lm,
        ready,
        lambda request, read, device: plan(model, ready[device], request, read),
        slots=slots,
        max_waiting=max_waiting,
        max_wait=max_wait,
    )


def start_scheduler(
    model: Model,
    lm: LMLike | None = None,
    *,
    voices: Mapping[str, Voice] = NOBODY,
    slots: int = 0,
    max_waiting: int = MAX_WAITING,
    max_wait: float = MAX_WAIT_SECONDS,
    profile: Profile = LATENCY,
) -> Scheduler:
    """The scheduler of a model, warmed up for these voices, and for others but for a few
    milliseconds of their first speech.

    0 slots are as many as the profile has; where they don't fit on the GPU, beside all else that a
    session needs, as many as do. Slots that were asked for are an error when they don't fit.
    """
    count = slots or profile.slots_on(model.device)
    if lm is None:
        model.need_lm()
    try:
        with oom_as_error(count):
            token2wavs = token2wavs_of(model, count, profile)
        warm_up(by_name(token2wavs), count)
    except OutOfGPUMemoryError as error:
        raise OutOfGPUMemoryError(
            "the GPU has no memory for flow and vocoder: end what else runs on it, or set "
            "COSYSERVE_GPU_MEMORY to more"
        ) from error
    make = partial(scheduler_of, model, lm, token2wavs, max_waiting=max_waiting, max_wait=max_wait)
    while True:
        try:
            scheduler = _warm(make, count)
            break
        except OutOfGPUMemoryError:
            if slots or count == 1:
                raise
        gc.collect()  # graphs of the one before hold the memory of the next
        torch.cuda.empty_cache()
        fewer = 3 * count // 4
        log.warning("the GPU has no memory for %d sessions: %d are tried", count, fewer)
        count = fewer
    with oom_as_error(count):
        for token2wav in token2wavs:
            token2wav.cache_prompts(_fitting(voices, model))
    return scheduler


def _fitting(voices: Mapping[str, Voice], model: Model) -> Iterator[Voice]:
    """Those with a prompt of this model's, `default` first; another one is refused when somebody
    asks for it."""
    for name in sorted(voices, key=lambda name: name != DEFAULT):
        with suppress(VoiceError):
            check_fits(voices[name], model.config.voice_format)
            if voices[name].speech_tokens.size:
                yield voices[name]


def _warm(make: Callable[..., Scheduler], slots: int) -> Scheduler:
    """In a function of its own: one that failed must not be held while the next is tried."""
    scheduler = make(slots=slots)
    scheduler.warm_up()
    return scheduler


def token2wavs_of(model: Model, slots: int, profile: Profile = LATENCY) -> list[Token2Wav]:
    """One on each of the devices that flow and vocoder are on."""
    model.need_token2wav()
    rows = [count for count in profile.rows if count < 2 * slots]
    return [Token2Wav(*pair, rows, profile.hop, profile.whole_batches) for pair in model.token2wavs]
