"""How often speech ends long before its text does, drawn once and with another try.

nano's LM draws the speech of texts with marks inside them, in its voices in turn: as the server
asks it, and as a runtime does that can't hold an end back. No teacher says how long each should be:
a text is taken to last as many tokens an id as the median text does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from benchmarks.figures import Figure, run
from benchmarks.marked_texts import marked_texts
from cosyserve.checkpoints.load import load_model
from cosyserve.contracts import SpeechRequest
from cosyserve.engine.scheduling.lm_requests import LMTask, lm_tasks
from cosyserve.engine.split.lm_service import LMService
from cosyserve.text.numbers import read_numbers
from cosyserve.voices.shipped import describe

TEXTS = 400
ROWS = 16  # that the LM draws at once
SHORT = 0.6  # of the expected length


@dataclass(frozen=True)
class Drawn:
    """Speech tokens of a segment: of the first attempt, and of the one that is spoken."""

    task: LMTask
    once: int
    spoken: int

    @property
    def ids(self) -> int:
        return self.task.text_tokens

    @property
    def retried(self) -> bool:
        return self.once < self.task.least_tokens

    @property
    def early(self) -> bool:
        return self.spoken < self.task.least_tokens


async def draw_all(lm: LMService, tasks: list[LMTask]) -> list[Drawn]:
    turns = asyncio.Semaphore(ROWS)

    async def tokens(task: LMTask, attempt: int) -> int:
        return sum([len(piece.ids) async for piece in lm.generate(task.for_attempt(attempt))])

    async def draw(task: LMTask) -> Drawn:
        async with turns:
            once = await tokens(task, 0)
            too_soon = once < task.least_tokens
            return Drawn(task, once, await tokens(task, 1) if too_soon else once)

    try:
        return await asyncio.gather(*map(draw, tasks))
    finally:
        await lm.close()


def measure() -> list[Figure]:
    torch.set_num_threads(1)
    model = load_model("nano")
    lm, tokenizer = model.need_lm()
    voices = [voice for name, voice in describe(model).voices.items() if name != "default"]
    tasks = [
        task
        for number, (_, text) in enumerate(marked_texts(TEXTS))
        for task in lm_tasks(
            model.config,
            tokenizer,
            SpeechRequest(text, voices[number % len(voices)], seed=number),
            text,
            read_numbers,
        )
    ]
    free = [replace(task, request=replace(task.request, min_tokens=0)) for task in tasks]
    found = []
    for name, asked in (("", tasks), ("ends never held back: ", free)):
        service = LMService(lm, sampling=model.config.sampling, slots=ROWS)
        found += figures(name, asyncio.run(draw_all(service, asked)))
    return found


def figures(name: str, drawn: list[Drawn]) -> list[Figure]:
    usual = median(one.once / one.ids for one in drawn)
    expected = usual * np.array([one.ids for one in drawn])
    once = np.array([one.once for one in drawn]) / expected
    spoken = np.array([one.spoken for one in drawn]) / expected
    quantiles = np.quantile(once, [0, 0.01, 0.05, 0.5, 0.99, 1])
    count = len(drawn)
    spread = "lengths at 0, 1, 5, 50, 99, 100 %: " + ", ".join(f"{q:.2f}" for q in quantiles)
    return [
        Figure(f"{name}segments", count, 200, at_least=True, detail=f"{usual:.2f} tokens an id"),
        Figure(f"{name}below {SHORT}, drawn once", int((once < SHORT).sum()), count, detail=spread),
        Figure(f"{name}below {SHORT}, with another try", int((spoken < SHORT).sum()), 0),
        Figure(f"{name}drawn again", sum(one.retried for one in drawn), count),
        Figure(f"{name}still early", sum(one.early for one in drawn), 0),
    ]


if __name__ == "__main__":
    run(measure, __doc__)
