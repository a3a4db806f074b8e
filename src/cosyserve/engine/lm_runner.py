"""The speech LM for many rows at once: join and leave at any step.

Knows no text and no audio. Rows fill the slots of one cache from the front; one that leaves is
replaced by the last, so that a step is always one batch of the first n slots. A prompt is fed in
pieces beside the others' steps, so that it never stalls them.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from cosyserve.contracts import CosyError, Sampling
from cosyserve.engine.generation import SEED_MASK, Generation
from cosyserve.models.lm import KVCache, SpeechLM
from cosyserve.models.randomness import uniform
from cosyserve.models.sampling import sample

PREFILL = 256  # prompt positions fed per step, of one row or several
SPAN = 64  # the cache is looked at in multiples of this


class LMRunner:
    def __init__(self, lm: SpeechLM, slots: int, positions: int) -> None:
        weight = lm.head.weight
        self.lm, self.slots = lm, slots
        self.rows: list[Generation] = []
        self._cache = KVCache.empty(
            lm.config, slots, positions, device=weight.device, dtype=weight.dtype
        )

    @property
    def positions(self) -> int:
        return self._cache.capacity

    @property
    def free(self) -> int:
        return self.slots - len(self.rows)

    def join(self, row: Generation) -> None:
        assert self.free
        self.rows.append(row)

    def leave(self, row: Generation) -> None:
        slot = self.rows.index(row)
        last = self.rows.pop()
        if last is not row:
            self.rows[slot] = last
            for part in (self._cache.keys, self._cache.values):
                part[:, slot, :, : last.length].copy_(part[:, len(self.rows), :, : last.length])

    @torch.inference_mode()
    def step(self) -> bool:
        """One token for every row that is ready, and prompts as far as a step may take them.
        False: nothing to do."""
        single = [slot for slot, row in enumerate(self.rows) if len(row.want()) == 1]
        longer = [slot for slot, row in enumerate(self.rows) if len(row.want()) > 1]
        drawing: list[tuple[Generation, Tensor]] = []
        if single:
            drawing += self._decode(single)
        room = PREFILL
        while longer and room:
            slot = longer.pop(0)
            piece = self.rows[slot].pending[:room]
            room -= len(piece)
            drawing += self._prefill(slot, piece)
        self._draw(drawing)
        return bool(single) or room < PREFILL

    def _decode(self, slots: list[int]) -> list[tuple[Generation, Tensor]]:
        """All slots up to the last one are computed; those that wait write behind their end."""
        rows = self.rows[: slots[-1] + 1]
        ids = [[row.pending[0] if len(row.pending) == 1 else 0] for row in rows]
        hidden = self._extend(0, len(rows), ids, [row.length for row in rows])
        logits = self.lm.logits(hidden[:, -1])
        for slot in slots:
            self._fed(rows[slot], 1)
        return [(rows[slot], logits[slot]) for slot in slots]

    def _prefill(self, slot: int, piece: list[int]) -> list[tuple[Generation, Tensor]]:
        row = self.rows[slot]
        hidden = self._extend(slot, slot + 1, [piece], [row.length])
        self._fed(row, len(piece))
        return [] if row.pending else [(row, self.lm.logits(hidden[0, -1]))]

    def _extend(self, first: int, end: int, ids: list[list[int]], lengths: list[int]) -> Tensor:
        device = self._cache.keys.device
        reach = max(lengths) + len(ids[0])
        if reach > self.positions:
            raise CosyError(f"an utterance outgrew its {self.positions} positions")
        span = min(self.positions, -(-reach // SPAN) * SPAN)
        cache = KVCache(self._cache.keys[:, first:end], self._cache.values[:, first:end])
        start = torch.tensor(lengths, device=device)
        return self.lm.extend(torch.tensor(ids, device=device), start, cache, span)

    @staticmethod
    def _fed(row: Generation, count: int) -> None:
        row.length += count
        del row.pending[:count]

    def _draw(self, drawing: list[tuple[Generation, Tensor]]) -> None:
        groups: dict[Sampling, list[tuple[Generation, Tensor]]] = defaultdict(list)
        for row, logits in drawing:
            if row.text.forced is not None:
                row.take(row.text.forced)
            else:
                groups[row.sampling].append((row, logits))
        for sampling, group in groups.items():
            rows = [row for row, _ in group]
            logits = torch.stack([logits for _, logits in group])
            sane = torch.isfinite(logits).all(-1).tolist()
            tokens = self._sample(rows, logits, sampling)
            for row, token, good, scores in zip(rows, tokens, sane, logits, strict=True):
                if good:
                    row.take(token)
                    if row.log_probs is not None and len(row.log_probs) < len(row.tokens):
                        row.log_probs.append(float(scores.log_softmax(-1)[token]))
                else:
                    row.finish = "error"

    def _sample(self, rows: list[Generation], logits: Tensor, sampling: Sampling) -> list[int]:
        device, window = logits.device, sampling.window
        seeds = torch.tensor([row.seed & SEED_MASK for row in rows], device=device)
        steps = torch.tensor([len(row.drawn) for row in rows], device=device)
        recent = [row.drawn[-window:] for row in rows]
        history = [[-1] * (window - len(ids)) + ids for ids in recent]
        forbidden = torch.zeros(logits.shape, dtype=torch.bool)
        for index, row in enumerate(rows):
            forbidden[index, list(row.text.forbidden)] = True
        drawn = sample(
            logits,
            torch.tensor(history, device=device),
            uniform(seeds, steps, 0),
            uniform(seeds, steps, 1),
            forbidden.to(device),
            sampling,
        )
        ids: list[int] = drawn.ids.tolist()
        return ids
