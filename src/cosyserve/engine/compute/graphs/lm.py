"""What one launch of the speech LM computes: a token for the first rows, or prefill of prompts.

All that a step needs to know of a row stays on the device, one line per slot, and a step leaves it
ready for the next; the host only reads what was drawn. Shapes are static and the host looks at no
number meanwhile, so that every step can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from cosyserve.contracts import MAX_WINDOW
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue
from cosyserve.engine.compute.limits import SEED_MASK
from cosyserve.models.fused import fused_lm
from cosyserve.models.lm.draw import (
    ACTIVE,
    FLOATS,
    INTS,
    LENGTH,
    TOKEN,
    draw,
    float_rules,
    forbidden_bits,
)
from cosyserve.models.lm.host import host_lm
from cosyserve.models.lm.lm import KVCache, SpeechLM

MAX_TOP_K = 64  # the top_k that captured steps allow; others are computed step by step
PIECES = (16, 32, 64, 128, 256, 512, 1024)  # ids of all pieces of a prefill, together
TILE = 32  # ids of a launch that belong to one row: the kernels' QUERIES
SPAN = 64  # the cache is looked at in multiples of this

Shape = tuple[str, int, int, int]  # kind, rows or length of the piece, span, max_top_k


@dataclass(frozen=True)
class PrefillPiece:
    """A part of a prompt: ids for the row in a slot, which holds `start` positions."""

    slot: int
    ids: Sequence[int]
    start: int
    end: bool  # the prompt ends here: the first token is drawn, and the row is active

    @property
    def tiles(self) -> int:
        return -(-len(self.ids) // TILE)


class LMGraphs:
    def __init__(self, lm: SpeechLM, slots: int, positions: int, queue: DeviceQueue) -> None:
        weight = lm.head.weight
        self.lm = lm
        self.queue = queue
        self.slots = slots
        self.positions = positions
        self.batches = (*_doubling(1, slots), slots)
        self.spans = (*_doubling(4 * SPAN, positions), positions)
        device = weight.device
        with queue.use():
            # The last line is a dummy row, for what is padded.
            self.cache = KVCache.empty(
                lm.config, slots + 1, positions, device=device, dtype=weight.dtype
            )
            self._ints = torch.zeros(slots + 1, INTS, dtype=torch.long, device=device)
            self._floats = torch.zeros(slots + 1, FLOATS, dtype=torch.float64, device=device)
            # What is fed: slot and first position of each tile; slot, length, going on and last id
            # of each row; then all ids.
            tiles = PIECES[-1] // TILE
            self._fed = torch.zeros(6 * tiles + PIECES[-1], dtype=torch.long, device=device)
            self._pieces, self._ids = self._fed[: 6 * tiles].view(6, tiles), self._fed[6 * tiles :]
            # Of each slot, the id drawn last (-1: the logits were no numbers) and its log-prob.
            self._outcome = torch.zeros(slots + 1, 2, dtype=torch.float64, device=device)
            self._fused = fused_lm(lm, positions)
        self._host = host_lm(lm)
        self._graphs = CapturedGraphs(queue, self._compute)

    def warm_up(self) -> int:
        """Captures the shapes of ordinary requests -> how many."""
        self._graphs.capture(self._usual() if self.queue.static else [])
        return len(self._graphs)

    def place(self, slot: int, row: Generation, token: int, *, active: bool) -> None:
        """Writes all that a step has to know of a row, `token` being the id that is fed next. A row
        that is not active is computed with others, but does not go on."""
        text, rules = row.text, row.sampling
        forbidden = forbidden_bits(self.lm.config, text.forbidden)
        history = [-1] * MAX_WINDOW
        for number in range(max(0, len(row.drawn) - MAX_WINDOW), len(row.drawn)):
            history[number % MAX_WINDOW] = row.drawn[number]
        numbers = (
            token,
            row.length,
            row.seed & SEED_MASK,
            len(row.drawn),
            int(active),
            text.min_tokens,
        )
        line = (*numbers, rules.top_k, rules.window, forbidden, *history)
        self.queue.write(self._ints[slot], line)
        self.queue.write(self._floats[slot], float_rules(rules))

    def move(self, source: int, target: int, length: int) -> None:
        """Gives a row another slot."""
        for kept in (self._ints, self._floats):
            kept[target].copy_(kept[source])
        for part in (self.cache.keys, self.cache.values):
            part[:, target, :, :length].copy_(part[:, source, :, :length])

    def clear(self, slot: int) -> None:
        """Zeroes a slot: NaN would spoil its next row, though it is masked."""
        self.cache.keys[:, slot].zero_()
        self.cache.values[:, slot].zero_()

    def decode(self, rows: int, reach: int, top_k: int) -> None:
        """One token for each active one of the first rows, of which none reaches further."""
        self._graphs.run(
            (
                "decode",
                self.queue.fit(rows, self.batches),
                self._span(reach),
                self._max_top_k(top_k),
            )
        )

    def prefill(self, pieces: Sequence[PrefillPiece], top_k: int) -> None:
        """Feeds pieces of prompts, whose tiles fill PIECES[-1] at most: all in one launch where the
        kernels compute, which know several rows."""
        if self.together:
            self._feed(pieces, top_k)
        else:
            for piece in pieces:
                self._feed([piece], top_k)

    def _feed(self, pieces: Sequence[PrefillPiece], top_k: int) -> None:
        ids: list[int] = []
        tiles: list[tuple[int, int]] = []
        rows: list[tuple[int, int, int, int]] = []
        for piece in pieces:
            ids += [0] * (TILE * len(tiles) - len(ids))  # every row begins with a tile
            tiles += [(piece.slot, piece.start + TILE * n) for n in range(piece.tiles)]
            ids += piece.ids
            length = piece.start + len(piece.ids)
            rows.append((piece.slot, length, int(piece.end), len(ids) - 1))
        dummy, width = self.slots, self._pieces.shape[1]
        tiles += [(dummy, 0)] * (width - len(tiles))
        rows += [(dummy, 0, 0, 0)] * (width - len(rows))
        columns = chain(*zip(*tiles, strict=True), *zip(*rows, strict=True))
        fed = [*columns, *ids]
        self.queue.write(self._fed[: len(fed)], fed)
        size = self.queue.fit(len(ids), PIECES)
        reach = max(piece.start for piece in pieces) + size
        self._graphs.run(("prefill", size, self._span(reach), self._max_top_k(top_k)))

    @property
    def together(self) -> bool:
        """Whether prompts of several rows share a launch."""
        return self._fused is not None

    @property
    def outcome(self) -> Tensor:
        return self._outcome

    def _usual(self) -> list[Shape]:
        max_top_k = self._max_top_k(1)
        return [
            ("decode", rows, span, max_top_k) for rows in self.batches for span in self.spans
        ] + [
            ("prefill", size, span, max_top_k)
            for size in PIECES
            for span in self.spans
            if span >= min(size, self.positions)
        ]

    def _span(self, reach: int) -> int:
        return self.queue.fit(min(self.positions, -(-reach // SPAN) * SPAN), self.spans)

    def _max_top_k(self, top_k: int) -> int:
        classes = self.lm.config.classes
        return min(classes, self.queue.fit(top_k, (MAX_TOP_K, classes)))

    def _compute(self, shape: Shape) -> None:
        kind, size, span, max_top_k = shape
        if kind == "decode":
            self._decode(size, span, max_top_k)
        else:
            self._prefill(size, span, max_top_k)

    def _decode(self, rows: int, span: int, max_top_k: int) -> None:
        tokens, lengths = self._ints[:rows, TOKEN], self._ints[:rows, LENGTH]
        if self._fused:
            logits = self._fused.logits(tokens, lengths, self.cache, span)
        elif self._host:
            logits = self._host.logits(tokens, lengths, self.cache, span)
        else:
            hidden = self.lm.extend(tokens[:, None], lengths, self.cache, span)
            logits = self.lm.logits(hidden[:, 0])
        self._draw(logits, None, max_top_k)

    def _prefill(self, size: int, span: int, max_top_k: int) -> None:
        count = -(-size // TILE) if self._fused else 1
        slots, starts, rows, lengths, active, last = self._pieces[:, :count]
        ids = self._ids[:size]
        if self._fused:
            logits = self._fused.prompt(ids, slots, starts, last, self.cache, span)
        else:
            hidden = self.lm.extend(ids[None], starts, self.cache, span, slots)
            logits = self.lm.logits(hidden[0].index_select(0, last))
        self._ints[:, LENGTH].index_copy_(0, rows, lengths)
        self._ints[:, ACTIVE].index_copy_(0, rows, active)
        self._draw(logits, rows, max_top_k)

    def _draw(self, logits: Tensor, slots: Tensor | None, max_top_k: int) -> None:
        """Rows of logits belong to the given slots; or to the first ones, fed one position each."""
        lines = self._ints, self._floats
        if self._fused and max_top_k <= MAX_TOP_K:
            self._fused.draw(logits, *lines, self._outcome, slots, max_top_k)
        elif slots is None:
            ints, floats = (kept[: len(logits)] for kept in lines)
            self._outcome[: len(logits)] = self._drawn(logits, ints, floats, max_top_k)
            ints[:, LENGTH] += ints[:, ACTIVE]
        else:
            ints, floats = (kept.index_select(0, slots) for kept in lines)
            outcome = self._drawn(logits, ints, floats, max_top_k)
            self._ints.index_copy_(0, slots, ints)
            self._outcome.index_copy_(0, slots, outcome)

    def _drawn(self, logits: Tensor, ints: Tensor, floats: Tensor, max_top_k: int) -> Tensor:
        if self._host:
            return self._host.draw(logits, ints, floats)
        return draw(logits, ints, floats, self.lm.config, max_top_k)


def _doubling(first: int, end: int) -> list[int]:
    """first, twice that, and so on below the end."""
    numbers = []
    while first < end:
        numbers.append(first)
        first *= 2
    return numbers
