"""A weighted finite-state transducer of OpenFst: bytes in, other bytes out."""

from __future__ import annotations

import math
import struct
from array import array
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
_WORD = 4  # bytes, of which states and arcs are made
_STATE_WORDS, _ARC_WORDS = _STATE.size // _WORD, _ARC.size // _WORD
_BYTES = [b"", *(bytes([byte]) for byte in range(1, 256))]  # of an output


class Transducer:
    """What its file holds, read as arcs are asked for: in the order of the file, and those that
    follow each other without a choice as one."""

    def __init__(self, file: bytes) -> None:
        if not file.startswith(_MAGIC):
            raise CosyError("the grammars of this wetext are of another format: install 0.0.9")
        _, _, _, self.start, states, _ = _HEADER.unpack_from(file, len(_MAGIC))
        self.size = states + 1  # with the one where the end leads
        self._states = file[len(_MAGIC) + _HEADER.size :]
        self._begins, at = array("l"), 0  # of each state's words
        words = memoryview(self._states).cast("i")  # struct would take three times as long
        for _ in range(states):
            self._begins.append(at)
            at += _STATE_WORDS + _ARC_WORDS * words[at + 1]
        self._is_passed = self._passed()
        self._label_sets: dict[frozenset[int], frozenset[int]] = {}  # equal ones are one
        self.arcs, self.consumes = cache(self._arcs), cache(self._consumes)

    def _passed(self) -> bytes:
        """For each state, whether it could be left out: nothing else leads to it or to its only
        next state, so that nothing depends on which of the two is looked at first."""
        words, begins = np.frombuffer(self._states, "<i4"), np.array(self._begins)
        numbers = words.view("<f4")
        of_arcs = np.ones(len(words), bool)
        for word in range(_STATE_WORDS):
            of_arcs[begins + word] = False
        targets = words[of_arcs].reshape(-1, _ARC_WORDS)[:, -1]
        entered_once = np.bincount(targets, minlength=len(begins)) <= 1
        entered_once[self.start] = False
        passed = (numbers[begins] == math.inf) & (words[begins + 1] == 1) & entered_once
        label, _, weight, target = begins[passed] + _STATE_WORDS + np.arange(_ARC_WORDS)[:, None]
        passed[passed] = (words[label] == 0) & (numbers[weight] == 0) & entered_once[words[target]]
        return bytes(passed)

    def _arcs(self, state: int) -> list[Arc]:
        begin, passed = self._begins[state] * _WORD, self._is_passed
        weight, count = _STATE.unpack_from(self._states, begin)
        begin += _STATE.size
        arcs = [
            self._followed(*arc) if passed[arc[3]] else (arc[0], arc[3], arc[2], _BYTES[arc[1]])
            for arc in _ARC.iter_unpack(self._states[begin : begin + count * _ARC.size])
        ]
        return arcs if weight == math.inf else [*arcs, (END, DONE, weight, b"")]

    def _consumes(self, state: int) -> frozenset[int]:
        """Labels that a path from the state may go on with."""
        arcs = self.arcs(state)
        others = [self.consumes(target) for label, target, _, _ in arcs if not label]
        labels = frozenset(label for label, _, _, _ in arcs if label).union(*others)
        return self._label_sets.setdefault(labels, labels)

    def _followed(self, label: int, output: int, weight: float, state: int) -> Arc:
        outputs = [output]
        while self._is_passed[state]:
            begin = (self._begins[state] + _STATE_WORDS) * _WORD
            _, output, _, state = _ARC.unpack_from(self._states, begin)
            outputs.append(output)
        return label, state, weight, bytes(filter(None, outputs))
