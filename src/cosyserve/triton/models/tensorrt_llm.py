"""The speech LM behind the tensors of Triton's TensorRT-LLM backend. Knows no text and no audio.

Sampling is nucleus and repetition-aware; a penalty or a temperature would be another LM's. A
request whose parameter `rests` names it may rest after its first piece, until the parameter `go_on`
of another has that name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

import numpy as np

from cosyserve.backends.protocols import LMRequest
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.hops import NEVER
from cosyserve.engine.split.lm_service import LMService
from cosyserve.errors import CosyError, InputError
from cosyserve.triton import vocabulary
from cosyserve.triton.models.base import Outputs, Request, Skin
from cosyserve.triton.models.loading import load

REST_SECONDS = 1.0  # at most
UNUSED = ("temperature", "repetition_penalty", "beam_width", "len_penalty")  # 1 means: off


class TritonPythonModel(Skin):
    def prepare(self) -> None:
        model = load(self.settings, "lm")
        lm, _ = model.need_lm()
        self.usual = model.config.sampling
        slots, waiting = int(self.settings["slots"]), int(self.settings["waiting"])
        self.lm = LMService(lm, slots=slots, max_waiting=waiting)
        self.resting: dict[int, asyncio.Event] = {}

    def held(self) -> dict[str, int]:
        return super().held() | {"lm_rows": len(self.lm.queue.lm.rows)}

    async def answers(self, request: Request) -> AsyncGenerator[Outputs, None]:
        if woken := self.resting.get(request.parameters.get("go_on", 0)):
            woken.set()
        if "go_on" in request.parameters:
            return
        asked, rests = _asked(request, self.usual), request.parameters.get("rests", 0)
        total = 0.0
        async with aclosing(self.lm.generate(asked)) as pieces:
            async for piece in pieces:
                if piece.finish == "error":
                    raise CosyError("the speech LM computed NaN: its weights are broken")
                total += sum(piece.log_probs)
                yield _outputs(piece.ids, piece.log_probs, total)
                if rests and self.lm.queue.paused:
                    await self._rest(rests)
                rests = 0

    async def _rest(self, name: int) -> None:
        woken = self.resting[name] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), REST_SECONDS)
        finally:
            self.resting.pop(name, None)


def _asked(request: Request, usual: Sampling) -> LMRequest:
    for name in UNUSED:
        if request.number(name, 1.0) != 1.0:
            raise InputError(f"{name} must be 1 or left out: the speech LM samples without it")
    ids = request.need("input_ids").reshape(-1)
    length = request.whole("input_lengths", ids.size)
    text, speech = vocabulary.understood(ids[:length].tolist())
    streaming, pace = request.flag("streaming", False), request.parameters
    return LMRequest(
        text,
        speech,
        request.whole("min_length", 0),
        request.whole("request_output_len", 0),
        request.whole("random_seed", 0),
        replace(
            usual,
            top_p=round(request.number("runtime_top_p", usual.top_p), 6),  # 0.8 is no float32
            top_k=request.whole("runtime_top_k", usual.top_k),
        ),
        int(pace.get("first", 1)) if streaming else NEVER,
        int(pace.get("every", 1)),
        request.flag("return_log_probs", False),
    )


def _outputs(tokens: Sequence[int], log_probs: Sequence[float], total: float) -> Outputs:
    """One beam of one row. Without log-probabilities theirs are empty."""
    ids = np.array(vocabulary.spoken(tokens), np.int32)
    return {
        "output_ids": ids[None, None],
        "sequence_length": np.array([[len(ids)]], np.int32),
        "cum_log_probs": np.array([[total]], np.float32),
        "output_log_probs": np.array(log_probs, np.float32)[None, None],
    }
