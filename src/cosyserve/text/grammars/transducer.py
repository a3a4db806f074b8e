"""A weighted finite-state transducer of OpenFst: bytes in, other bytes out."""

from __future__ import annotations

import math
import struct
from functools import cache

import numpy as np

from cosyserve.errors import CosyError

END = 256  # the label of the arc that leaves a final state
DONE = -1  # where it leads
Arc = tuple[int, int, float, bytes]  # label (0 consumes nothing), next state, weight, output

_LENGTH = struct.Struct("<i")
_MAGIC = b"\xd6\xfd\xb2\x7e" + b"".join(
    _LENGTH.pack(len(name)) + name for name in (b"vector", b"standard")
)
_HEADER = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_STATE = struct.Struct("<fq")  # weight of an end here, arcs
_ARC = struct.Struct("<iifi")  # label, output, weight, next state


class Transducer:
    """What its file holds, read as arcs are asked for: in the order of the file, and those that
    follow each other without a choice as one."""

    def __init__(self, file: bytes) -> None:
        if not file.startswith(_MAGIC):
            raise CosyError("the grammars of this wetext are of another format: install 0.0.9")
        self._file = file
        _, _, _, self.start, states, _ = _HEADER.unpack_from(file, len(_MAGIC))
        first = at = len(_MAGIC) + _HEADER.size
        self._states: list[tuple[float, int, int]] = []  # weight of an end, where its arcs are
        for _ in range(states):
            weight, arcs = _STATE.unpack_from(file, at)
            begin = at + _STATE.size
            at = begin + arcs * _ARC.size
            self._states.append((weight, begin, at))
        self._entries = self._counted(first)
        self._label_sets: dict[frozenset[int], frozenset[int]] = {}  # equal ones are one
        self.arcs, self.consumes = cache(self._arcs), cache(self._consumes)

    def _counted(self, first: int) -> list[int]:
        """How many arcs lead to each state."""
        words = np.frombuffer(self._file, "<i4", offset=first)
        begins = (np.array([begin for _, begin, _ in self._states]) - first) // words.itemsize
        of_arcs = np.ones(len(words), bool)
        for back in range(1, _STATE.size // words.itemsize + 1):
            of_arcs[begins - back] = False
        targets = words[of_arcs].reshape(-1, _ARC.size // words.itemsize)[:, -1]
        entries = np.bincount(targets, minlength=len(self._states))
        entries[self.start] += 1
        return list(map(int, entries))

    def _arcs(self, state: int) -> list[Arc]:
        weight, begin, end = self._states[state]
        arcs = [self._followed(*arc) for arc in _ARC.iter_unpack(self._file[begin:end])]
        return arcs if weight == math.inf else [*arcs, (END, DONE, weight, b"")]

    def _consumes(self, state: int) -> frozenset[int]:
        """Labels that a path from the state may go on with."""
        arcs = self.arcs(state)
        others = [self.consumes(target) for label, target, _, _ in arcs if not label]
        labels = frozenset(label for label, _, _, _ in arcs if label).union(*others)
        return self._label_sets.setdefault(labels, labels)

    def _followed(self, label: int, output: int, weight: float, state: int) -> Arc:
        outputs = [output]
        while arc := self._only_arc(state):
            outputs.append(arc[1])
            state = arc[3]
        return label, state, weight, bytes(filter(None, outputs))

    def _only_arc(self, state: int) -> tuple[int, int, float, int] | None:
        """The arc of a state that could be left out: nothing else leads to it or to the next
        state, so that nothing depends on which of the two is looked at first."""
        weight, begin, end = self._states[state]
        if weight != math.inf or end - begin != _ARC.size or self._entries[state] > 1:
            return None
        label, output, more, following = _ARC.unpack_from(self._file, begin)
        if label or more or self._entries[following] > 1:
            return None
        return label, output, more, following
