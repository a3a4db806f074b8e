"""The best of all that a transducer makes of a text."""

from __future__ import annotations

import math
import struct

from cosyserve.text.grammars.transducer import DONE, END, Transducer

KEPT_STEPS = 300_000  # 25 MB
Node = tuple[int, int]  # how many bytes of the text are consumed, state
Edge = tuple[Node, float, bytes]

_FLOAT32 = struct.Struct("<f")


class BestPath:
    """Finds what OpenFst does, by composition and its shortest path: of paths with the same weight
    the same one.

    Most states that a byte leads to can't consume what follows. These are sorted out as sets,
    and what a byte leads to is kept for the next text; the few that are left are looked at closely.
    """

    def __init__(self, transducer: Transducer) -> None:
        self._transducer = transducer
        kept = dict[frozenset[int], frozenset[int]]()
        self._steps = [_Steps(transducer, label, kept) for label in range(END + 1)]

    def __call__(self, text: str) -> str:
        """The output of the path with the least weight, "" where there is no path."""
        if sum(map(len, self._steps)) > KEPT_STEPS:
            for steps in self._steps:
                steps.clear()
        labels = [*filter(None, text.encode()), END]
        start, end = (0, self._transducer.start), (len(labels), DONE)
        weights, before = {start: 0.0}, dict[Node, tuple[Node, bytes]]()
        for node, edges in self._sorted(start, labels):
            weight = weights[node]
            for target, more, output in edges:
                total = weight
                if more:  # OpenFst counts in float32
                    (total,) = _FLOAT32.unpack(_FLOAT32.pack(weight + more))
                if total < weights.get(target, math.inf):
                    weights[target] = total
                    before[target] = node, output
        outputs, node = list[bytes](), end
        while node in before:
            node, output = before[node]
            outputs.append(output)
        return b"".join(reversed(outputs)).decode()

    def _sorted(self, start: Node, labels: list[int]) -> list[tuple[Node, list[Edge]]]:
        """The nodes on all paths to the end: each before those it leads to, the last to be left by
        a search in depth first."""
        alive = self._alive(labels)
        if not alive[0]:
            return []
        left = list[tuple[Node, list[Edge]]]()
        edges = self._edges(start, labels, alive)
        seen, stack = {start}, [(start, edges, iter(edges))]
        while stack:
            node, edges, rest = stack[-1]
            for target, _, _ in rest:
                if target not in seen:
                    seen.add(target)
                    edges = self._edges(target, labels, alive)
                    stack.append((target, edges, iter(edges)))
                    break
            else:
                left.append((node, edges))
                stack.pop()
        return left[::-1]

    def _edges(self, node: Node, labels: list[int], alive: list[set[int]]) -> list[Edge]:
        """To nodes from which a way leads to the end."""
        at, state = node
        if state == DONE:
            return []
        label, ahead = labels[at], alive[at + 1]
        steps, consumes = self._steps[label], self._transducer.consumes
        edges = list[Edge]()
        for consumed, target, weight, output in self._transducer.arcs(state):
            if consumed:
                if consumed == label and target in ahead:
                    edges.append(((at + 1, target), weight, output))
            elif label in consumes(target) and not ahead.isdisjoint(steps[target]):
                edges.append(((at, target), weight, output))
        return edges

    def _alive(self, labels: list[int]) -> list[set[int]]:
        """After each byte, the states it leads to from which a way leads to the end."""
        alive, consumes = [{self._transducer.start}], self._transducer.consumes
        for label in labels:
            steps = self._steps[label]
            alive[-1] = {state for state in alive[-1] if label in consumes(state)}
            alive.append(set[int]().union(*[steps[state] for state in alive[-1]]))
        for at in reversed(range(len(labels))):
            steps, ahead = self._steps[labels[at]], alive[at + 1]
            alive[at] = {state for state in alive[at] if not ahead.isdisjoint(steps[state])}
        return alive


class _Steps(dict[int, frozenset[int]]):
    """Where a byte leads to from a state, behind arcs that consume nothing; found out when it is
    asked for. `kept` has equal sets once."""

    def __init__(
        self, transducer: Transducer, label: int, kept: dict[frozenset[int], frozenset[int]]
    ) -> None:
        self._transducer, self._label, self._kept = transducer, label, kept

    def __missing__(self, state: int) -> frozenset[int]:
        label, consumes = self._label, self._transducer.consumes
        arcs = self._transducer.arcs(state)
        found = [self[arc[1]] for arc in arcs if not arc[0] and label in consumes(arc[1])]
        own = [arc[1] for arc in arcs if arc[0] == label]
        if own or len(found) != 1:
            steps = frozenset(own).union(*found)
            found = [self._kept.setdefault(steps, steps)]
        self[state] = found[0]
        return found[0]
