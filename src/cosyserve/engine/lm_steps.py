"""What one launch of the speech LM computes: a token for the first rows, or a piece of a prompt.

Knows no request. All that a step needs to know of a row stays on the device, one line per slot, and
a step leaves it ready for the next; the host only reads what was drawn. Shapes are static and no
number is looked at, so that every step can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from cosyserve.contracts import MAX_WINDOW
from cosyserve.engine.generation import SEED_MASK, Generation
from cosyserve.engine.lane import Lane
from cosyserve.models.drawing import ACTIVE, FLOATS, INTS, LENGTH, TOKEN, draw
from cosyserve.models.fused_lm import fused
from cosyserve.models.lm import KVCache, SpeechLM

MOST = 64  # the top_k that captured steps allow; others are computed step by step
PIECES = (16, 32, 64, 128, 256)  # lengths of a prompt's pieces
SPAN = 64  # the cache is looked at in multiples of this

Shape = tuple[str, int, int, int]  # kind, rows or length of the piece, span, most


class LMSteps:
    def __init__(self, lm: SpeechLM, slots: int, positions: int, lane: Lane) -> None:
        weight = lm.head.weight
        self.lm, self.lane, self.slots, self.positions = lm, lane, slots, positions
        self.batches = (*_doubling(1, slots), slots)
        self.spans = (*_doubling(4 * SPAN, positions), positions)
        device = weight.device
        with lane.here():
            self.cache = KVCache.empty(
                lm.config, slots, positions, device=device, dtype=weight.dtype
            )
            self._ints = torch.zeros(slots, INTS, dtype=torch.long, device=device)
            self._floats = torch.zeros(slots, FLOATS, dtype=torch.float64, device=device)
            self._piece = torch.tensor((0, 0, 1, 0), device=device)  # slot, start, count, end
            self._ids = torch.zeros(1, PIECES[-1], dtype=torch.long, device=device)
            # Of each slot, the id drawn last (-1: the logits were no numbers) and its log-prob.
            self._outcome = torch.zeros(slots, 2, dtype=torch.float64, device=device)
            self._fused = fused(lm, positions)
        self._captured: dict[Shape, Callable[[], None]] = {}

    def warm_up(self) -> int:
        """Captures what is asked of an LM usually -> how many shapes."""
        usual = self._usual() if self.lane.static else []
        self._captured = self.lane.captures(
            {shape: partial(self._compute, shape) for shape in usual}
        )
        return len(self._captured)

    def place(self, slot: int, row: Generation, token: int, *, active: bool) -> None:
        """All that a step has to know of a row, `token` being the id that is fed next. A row that
        is not active is computed with others, but does not go on."""
        text, rules, config = row.text, row.sampling, self.lm.config
        forbidden = sum(1 << (i - config.speech_tokens) for i in text.forbidden)
        history = [-1] * MAX_WINDOW
        for number in range(max(0, len(row.drawn) - MAX_WINDOW), len(row.drawn)):
            history[number % MAX_WINDOW] = row.drawn[number]
        numbers = (token, row.length, row.seed & SEED_MASK, len(row.drawn), int(active), text.least)
        line = (*numbers, rules.top_k, rules.window, forbidden, *history)
        self.lane.write(self._ints[slot], line)
        self.lane.write(self._floats[slot], (rules.top_p, rules.max_repeats))

    def move(self, source: int, target: int, length: int) -> None:
        """A row changes its slot."""
        for kept in (self._ints, self._floats):
            kept[target].copy_(kept[source])
        for part in (self.cache.keys, self.cache.values):
            part[:, target, :, :length].copy_(part[:, source, :, :length])

    def clear(self, slot: int) -> None:
        """What is no number would spoil the slot's next row, though it is masked."""
        self.cache.keys[:, slot].zero_()
        self.cache.values[:, slot].zero_()

    def decode(self, rows: int, reach: int, top_k: int) -> None:
        """One token for each active one of the first rows, of which none reaches further."""
        self._run(
            ("decode", self.lane.fit(rows, self.batches), self._span(reach), self._most(top_k))
        )

    def prefill(self, slot: int, ids: Sequence[int], start: int, top_k: int, *, end: bool) -> None:
        """Feeds a piece of a prompt. At its end the first token is drawn, and the row is active."""
        size = self.lane.fit(len(ids), PIECES)
        self.lane.write(self._piece, (slot, start, len(ids), int(end)))
        self.lane.write(self._ids[0, : len(ids)], ids)
        reach = min(start + size, self.positions)
        self._run(("prefill", size, self._span(reach), self._most(top_k)))

    @property
    def outcome(self) -> Tensor:
        return self._outcome

    def _usual(self) -> list[Shape]:
        most = self._most(1)
        return [("decode", rows, span, most) for rows in self.batches for span in self.spans] + [
            ("prefill", size, span, most) for size in PIECES for span in self.spans if span >= size
        ]

    def _span(self, reach: int) -> int:
        return self.lane.fit(min(self.positions, -(-reach // SPAN) * SPAN), self.spans)

    def _most(self, top_k: int) -> int:
        classes = self.lm.config.classes
        return min(classes, self.lane.fit(top_k, (MOST, classes)))

    def _run(self, shape: Shape) -> None:
        captured = self._captured.get(shape)
        captured() if captured else self._compute(shape)

    def _compute(self, shape: Shape) -> None:
        kind, size, span, most = shape
        if kind == "decode":
            self._decode(size, span, most)
        else:
            self._prefill(size, span, most)

    def _decode(self, rows: int, span: int, most: int) -> None:
        tokens, lengths = self._ints[:rows, TOKEN], self._ints[:rows, LENGTH]
        if self._fused:
            logits = self._fused.logits(tokens, lengths, self.cache, span)
        else:
            hidden = self.lm.extend(tokens[:, None], lengths, self.cache, span)
            logits = self.lm.logits(hidden[:, 0])
        lengths += self._ints[:rows, ACTIVE]
        self._draw(logits, None, most)

    def _prefill(self, size: int, span: int, most: int) -> None:
        slot, start, count, end = self._piece[:, None].unbind()
        ids = self._ids[:, :size]
        if self._fused:
            logits = self._fused.prompt(ids[0], slot, start, count, self.cache, span)
        else:
            hidden = self.lm.extend(ids, start, self.cache, span, slot)
            logits = self.lm.logits(hidden[0].index_select(0, count - 1))
        self._ints[:, LENGTH].index_copy_(0, slot, start + count)
        self._ints[:, ACTIVE].index_copy_(0, slot, end)
        self._draw(logits, slot, most)

    def _draw(self, logits: Tensor, slots: Tensor | None, most: int) -> None:
        """Rows of logits belong to the given slots, or to the first ones."""
        lines = self._ints, self._floats
        if self._fused and most <= MOST:
            self._fused.draw(logits, *lines, self._outcome, slots, most)
        elif slots is None:
            ints, floats = (kept[: len(logits)] for kept in lines)
            self._outcome[: len(logits)] = draw(logits, ints, floats, self.lm.config, most)
        else:
            ints, floats = (kept.index_select(0, slots) for kept in lines)
            found = draw(logits, ints, floats, self.lm.config, most)
            self._ints.index_copy_(0, slots, ints)
            self._outcome.index_copy_(0, slots, found)


def _doubling(first: int, end: int) -> list[int]:
    """first, twice that, and so on below the end."""
    found = []
    while first < end:
        found.append(first)
        first *= 2
    return found
