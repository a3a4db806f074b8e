"""What the flow computed of the first frames of prompts, so that streams in these voices compute
only what comes behind.

Under the chunk mask a frame sees nothing behind its own chunk: what a layer computes of a prompt's
whole chunks is the same whatever is said next. The first stream in a voice leaves it in a slot;
the slot of the voice that was heard least recently is used anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs.device_queue import Mark
from cosyserve.engine.compute.limits import MAX_PREFIX_TOKENS
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt

MAX_FRAMES = FRAMES_PER_TOKEN * MAX_PREFIX_TOKENS
MAX_SLOTS = 64
SLOTS_PER_ROW = 8  # that is computed in one call: few listeners have few voices
SHARE = 0.1  # of the memory that is free
ENOUGH = 40 * gpu_memory.GIB  # free memory, for all else: half of what is beyond it may be taken


@dataclass(eq=False)
class Slot:
    """Room for a prompt's prefix."""

    number: int
    key: str = ""  # of the prompt; empty: nobody's
    filled: Mark | None = None  # where what it holds is written
    borrowers: int = 0  # calls that are being queued
    ends: list[Mark] = field(default_factory=list)  # of calls that are queued

    @property
    def idle(self) -> bool:
        return not self.borrowers and all(end.passed for end in self.ends)


class Borrowed(NamedTuple):
    """A slot that a row reads, which holds `known` tokens, or that it fills with `wanted` ones."""

    slot: Slot
    known: int
    wanted: int


class PrefixCache:
    def __init__(self, flow: Flow, places: Sequence[tuple[int, int]], slots: int) -> None:
        """`places`: frames and channels that each layer keeps of MAX_FRAMES."""
        self._grid, self._lookahead = flow.grid, flow.lookahead
        self._copies, like = flow.config.copies, flow.weight
        self.memories = tuple(
            like.new_empty(flow.config.steps, self._copies * slots, frames, channels)
            for frames, channels in places
        )
        self._slots = [Slot(number) for number in range(slots)]  # least recently used first

    @classmethod
    def of(cls, flow: Flow, places: Sequence[tuple[int, int]], max_rows: int) -> PrefixCache | None:
        """As many slots as the GPU has memory for, and calls of `max_rows` have use for; None where
        that is none, or nothing is kept."""
        numbers = sum(frames * channels for frames, channels in places)
        size = flow.config.copies * flow.config.steps * numbers * flow.weight.element_size()
        free = gpu_memory.free_bytes(flow.weight.device)
        room = max(int(SHARE * free), (free - ENOUGH) // 2)
        slots = min(MAX_SLOTS, SLOTS_PER_ROW * max_rows, room // max(1, size))
        return cls(flow, places, slots) if places and slots else None

    @property
    def slots(self) -> int:
        return len(self._slots)

    def known(self, prompt: FlowPrompt) -> int | None:
        """Tokens of this prompt that need not be computed; None: it has no slot."""
        slot = self._slot_of(prompt)
        if slot is None:
            return None
        return self._tokens(prompt) if slot.filled and slot.filled.passed else 0

    def borrow(self, prompt: FlowPrompt) -> Borrowed | None:
        """The prompt's own slot, or one to fill; None: nothing is gained, or none is free."""
        tokens, known = self._tokens(prompt), self.known(prompt)
        slot = self._slot_of(prompt)
        if slot is None and tokens:
            slot = next((slot for slot in self._slots if slot.idle), None)
        if slot is None or known == 0:
            return None
        if known is None:
            slot.key, slot.filled = prompt.key, None
        slot.borrowers += 1
        self._slots.remove(slot)
        self._slots.append(slot)
        return Borrowed(slot, known or 0, 0 if known else tokens)

    def give_back(self, borrowed: Borrowed, end: Mark, *, done: bool) -> None:
        """`end`: of the call's work in its queue; `done`: it was all queued."""
        slot = borrowed.slot
        slot.borrowers -= 1
        slot.ends = [*(earlier for earlier in slot.ends if not earlier.passed), end]
        if borrowed.wanted and done:
            slot.filled = end
        elif borrowed.wanted:
            self._empty(slot)

    def forget(self, prompt: FlowPrompt) -> None:
        """What was computed of it is wrong."""
        if slot := self._slot_of(prompt):
            self._empty(slot)

    def columns(self, rows: Sequence[Borrowed | None]) -> list[list[int]]:
        """Of each row its first line of the memories, and the tokens that it knows and wants."""
        given = [row or Borrowed(self._slots[0], 0, 0) for row in rows]
        return [[self._copies * row.slot.number, row.known, row.wanted] for row in given]

    def _tokens(self, prompt: FlowPrompt) -> int:
        """Of the prompt's prefix: whole chunks that see nothing of what is said behind it."""
        fixed = len(prompt.tokens) - self._lookahead if prompt.key else 0
        return max(0, min(fixed, MAX_PREFIX_TOKENS) // self._grid * self._grid)

    def _empty(self, slot: Slot) -> None:
        slot.key, slot.filled = "", None
        self._slots.remove(slot)
        self._slots.insert(0, slot)

    def _slot_of(self, prompt: FlowPrompt) -> Slot | None:
        key = prompt.key
        return next((slot for slot in self._slots if slot.key == key), None) if key else None
