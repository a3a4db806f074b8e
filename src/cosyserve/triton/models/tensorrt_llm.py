"""The speech LM behind the tensors of Triton's TensorRT-LLM backend.

Sampling is nucleus and repetition-aware: a penalty, which the original's clients send, is taken and
changes nothing, and beams are refused. A request with the parameter `pause_id` may pause after its
first chunk, until the parameter `resume` of another request has that id.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import cache

import numpy as np

from cosyserve.backends.protocols import LMRequest
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.hops import NEVER
from cosyserve.engine.split.lm_service import LMService
from cosyserve.errors import CosyError, InputError
from cosyserve.triton.models.instance.async_model import (
    QUEUE_TIME,
    AsyncTritonModel,
    Outputs,
    Request,
)
from cosyserve.triton.models.instance.loading import load_parts
from cosyserve.triton.vocabulary import vocabulary_of

MAX_PAUSE_SECONDS = 1.0
REFUSED = ("beam_width", "len_penalty")  # unless they are 1, which means: off

log = logging.getLogger(__name__)


class TritonPythonModel(AsyncTritonModel):
    def prepare(self) -> None:
        model = load_parts(self.settings, "lm")
        lm, _ = model.need_lm()
        self.sampling = model.config.sampling
        self.vocabulary = vocabulary_of(model.config.family).lm
        slots, waiting = int(self.settings["slots"]), int(self.settings["waiting"])
        self.lm = LMService(lm, slots=slots, max_waiting=waiting)
        self.paused: dict[int, asyncio.Event] = {}

    def held(self) -> dict[str, int]:
        return super().held() | {"lm_rows": len(self.lm.queue.lm.rows)}

    def totals(self) -> dict[str, float]:
        return super().totals() | {QUEUE_TIME: 1e6 * self.lm.queue.waited_seconds}

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        if resumed := self.paused.get(request.parameters.get("resume", 0)):
            resumed.set()
        if "resume" in request.parameters:
            return
        pause_id = request.parameters.get("pause_id", 0)
        total = 0.0
        asked = _lm_request(request, self.sampling, self.vocabulary)
        async with aclosing(self.lm.generate(asked)) as pieces:
            async for piece in pieces:
                if piece.finish == "error":
                    raise CosyError("the speech LM computed NaN: its weights are broken")
                total += sum(piece.log_probs)
                yield _outputs(self.vocabulary.ids(piece.ids), piece.log_probs, total)
                if pause_id and self.lm.queue.paused:
                    await self._pause(pause_id)
                pause_id = 0

    async def _pause(self, pause_id: int) -> None:
        resumed = self.paused[pause_id] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(resumed.wait(), MAX_PAUSE_SECONDS)
        finally:
            self.paused.pop(pause_id, None)


def _lm_request(request: Request, defaults: Sampling, vocabulary: Vocabulary) -> LMRequest:
    for name in REFUSED:
        if request.get_float(name, 1.0) != 1.0:
            raise InputError(f"{name} must be 1 or left out: the speech LM samples without it")
    penalty = request.get_float("repetition_penalty", 1.0)
    if not 0 < penalty < math.inf:
        raise InputError(f"repetition_penalty must be more than 0, got {penalty:g}")
    if penalty != 1.0:
        _warn_once()
    ids = request.need("input_ids").reshape(-1)
    length = request.get_int("input_lengths", ids.size)
    text, speech = vocabulary.parse(ids[:length].tolist())
    streaming = request.get_bool("streaming", False)
    return LMRequest(
        text=text,
        speech=speech,
        min_tokens=request.get_int("min_length", 0),
        max_tokens=request.get_int("request_output_len", 0),
        seed=request.get_int("random_seed", 0),
        sampling=replace(
            defaults,
            # Rounded: 0.8 is no float32.
            top_p=round(request.get_float("runtime_top_p", defaults.top_p), 6),
            top_k=request.get_int("runtime_top_k", defaults.top_k),
            temperature=round(request.get_float("temperature", defaults.temperature), 6),
        ),
        first_chunk=int(request.parameters.get("first_chunk", 1)) if streaming else NEVER,
        chunk=int(request.parameters.get("chunk", 1)),
        log_probs=request.get_bool("return_log_probs", False),
    )


@cache
def _warn_once() -> None:
    log.warning("repetition_penalty changes nothing: the speech LM draws repetition-aware")


def _outputs(drawn: Sequence[int], log_probs: Sequence[float], total: float) -> Outputs:
    """One beam of one row. Log-probabilities that were not computed are an empty output."""
    ids = np.array(drawn, np.int32)
    return {
        "output_ids": ids[None, None],
        "sequence_length": np.array([[len(ids)]], np.int32),
        "cum_log_probs": np.array([[total]], np.float32),
        "output_log_probs": np.array(log_probs, np.float32)[None, None],
    }
