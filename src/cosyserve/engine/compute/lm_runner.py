"""The speech LM for many rows at once: join and leave at any step.

Rows fill the slots of one KV cache from the front; one that leaves is replaced by the last, so that
a step is always one batch of the first n slots. Prefill is chunked, so that a prompt never stalls
the others' steps. On a GPU the host reads what a step drew while the next one is computed: a row
that has come to its end is stepped once more, in vain. But the last token that all rows wait for is
read first: their chunks then have the GPU to themselves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.graphs.device_queue import URGENT, DeviceQueue, HostCopy
from cosyserve.engine.compute.graphs.lm import PIECES, TILE, LMGraphs, PrefillPiece
from cosyserve.errors import CosyError
from cosyserve.models.lm.lm import SpeechLM

PREFILL = 256  # prompt positions per step, where rows of a prefill don't share a launch


@dataclass(frozen=True)
class LaunchedStep:
    """A step that is being computed: rows that draw a token, each with its slot."""

    rows: list[tuple[Generation, int]]
    outcome: HostCopy


class LMRunner:
    def __init__(
        self, lm: SpeechLM, slots: int, positions: int, queue: DeviceQueue | None = None
    ) -> None:
        self.lm, self.slots = lm, slots
        self.queue = queue or DeviceQueue(lm.head.weight.device, URGENT)
        self.rows: list[Generation] = []
        self._present: set[Generation] = set()
        self._launched: deque[LaunchedStep] = deque()
        self._graphs = LMGraphs(lm, slots, positions, self.queue)

    @property
    def positions(self) -> int:
        return self._graphs.positions

    @property
    def free(self) -> int:
        return self.slots - len(self.rows)

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Captures shapes, before the first row joins -> how many."""
        assert not self.rows
        return self._graphs.warm_up()

    def reserve(self) -> None:
        """Reserves memory for rows to come, after all captures."""
        self.queue.reserve()

    @torch.inference_mode()
    def join(self, row: Generation) -> None:
        assert self.free
        row.next_inputs()
        with self.queue.use():
            self._graphs.place(len(self.rows), row, 0, active=False)
        self.rows.append(row)
        self._present.add(row)

    @torch.inference_mode()
    def leave(self, row: Generation) -> None:
        slot = self.rows.index(row)
        last = self.rows.pop()
        self._present.remove(row)
        with self.queue.use():
            if row.finish == "error":
                self._graphs.clear(slot)
            if last is not row:
                self.rows[slot] = last
                self._graphs.move(len(self.rows), slot, last.length)
        row.length = 0

    @torch.inference_mode()
    def step(self) -> bool:
        """One token for every row that is ready, and prompts as far as a step may take them.
        False: nothing to do."""
        worked = False
        with self.queue.use():
            if any(row.needs_host for row in self.rows):
                worked = bool(self._launched)
                self._collect(0)
            if self._launched and all(len(row.tokens) + 1 == row.enough for row in self.rows):
                self._collect(0)
                return True
            drawing = self._decode()
            fed, first = self._prefill({slot for _, slot in drawing})
            drawing += first
            if drawing:
                end = 1 + max(slot for _, slot in drawing)
                outcome = self.queue.read(self._graphs.outcome[:end])
                self._launched.append(LaunchedStep(drawing, outcome))
            worked = worked or fed or bool(self._launched)
            self._collect(1 if drawing and self.queue.static else 0)
        return worked

    def _decode(self) -> list[tuple[Generation, int]]:
        """All slots up to the last one are computed; those that wait write behind their end."""
        decoding = [(row, slot) for slot, row in enumerate(self.rows) if _decodes(row)]
        if not decoding:
            return []
        rows = self.rows[: decoding[-1][1] + 1]
        # Of all rows: a batch is rounded up to a captured one, which takes some behind it along.
        reach = 1 + max(row.length for row in self.rows)
        if reach > self.positions:
            raise CosyError(f"an utterance outgrew its {self.positions} positions")
        for row, slot in decoding:
            if row.needs_host:
                self._graphs.place(slot, row, row.pending.pop(), active=True)
            row.length += 1
        self._graphs.decode(len(rows), reach, max(row.sampling.top_k for row in rows))
        return decoding

    def _prefill(self, decoded: set[int]) -> tuple[bool, list[tuple[Generation, int]]]:
        """Whether anything was fed, and the rows whose prompt has come to its end."""
        budget, pieces, ended = PIECES[-1] if self._graphs.together else PREFILL, [], []
        for slot, row in enumerate(self.rows):
            if slot in decoded or not row.pending or row.finish or budget <= 0:
                continue
            ids = row.pending[:budget]
            del row.pending[: len(ids)]
            if row.needs_host:
                self._graphs.place(slot, row, 0, active=False)
            pieces.append(PrefillPiece(slot, ids, row.length, not row.pending))
            budget -= TILE * pieces[-1].tiles
            row.length += len(ids)
            if row.length > self.positions:
                raise CosyError(f"an utterance outgrew its {self.positions} positions")
            if not row.pending:
                ended.append((row, slot))
        if pieces:
            self._graphs.prefill(pieces, max(self.rows[p.slot].sampling.top_k for p in pieces))
        return bool(pieces), ended

    def _collect(self, keep: int) -> None:
        """Hands over what was drawn, but for the newest steps, which may still be computed."""
        while len(self._launched) > keep:
            launched = self._launched.popleft()
            (outcome,) = launched.outcome.get()
            draws = outcome.tolist()
            for row, slot in launched.rows:
                if row in self._present and row.finish is None:
                    token, score = draws[slot]
                    _take(row, int(token), score)


def _decodes(row: Generation) -> bool:
    """Whether a row needs only one id to be fed; where the host must see draws, it knows which."""
    if row.finish is not None:
        return False
    return len(row.next_inputs()) == 1 if row.needs_host else bool(row.length) and not row.pending


def _take(row: Generation, token: int, score: float) -> None:
    forced = row.text.forced
    if forced is not None:
        row.take(forced)
    elif token < 0:
        row.finish = "error"
    else:
        row.take(token)
        if row.log_probs is not None and len(row.log_probs) < len(row.tokens):
            row.log_probs.append(score)
