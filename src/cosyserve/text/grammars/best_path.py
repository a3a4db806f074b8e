"""The best of all that a transducer makes of a text."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from cosyserve.text.grammars.transducer import DONE, END, Transducer

KEPT_STEPS = 300_000  # 237,000 are 45 MB, with the arcs they come from
# Bytes of the text that are consumed, times the transducer's size, and a state, counted from DONE.
Node = int
Edge = tuple[int, int, Node, float, bytes]  # label, next state, nodes from here, weight, output
Nodes = list[tuple[Node, list[Edge]]]

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
        self._edges = [_Edges(transducer, label) for label in range(END + 1)]

    def __call__(self, text: str) -> str:
        """The output of the path with the least weight, "" where there is no path."""
        if sum(map(len, self._steps)) > KEPT_STEPS:
            for steps, kept in zip(self._steps, self._edges, strict=True):
                steps.clear()
                kept.clear()
        labels = [*filter(None, text.encode()), END]
        start, end = self._transducer.start - DONE, len(labels) * self._transducer.size
        weights, before = {start: 0.0}, dict[Node, tuple[Node, bytes]]()
        for node, edges in self._sorted(start, labels):
            weight = weights[node]
            for _, _, way, more, output in edges:
                total = weight
                if more:  # OpenFst counts in float32
                    (total,) = _FLOAT32.unpack(_FLOAT32.pack(weight + more))
                if total < weights.get(node + way, math.inf):
                    weights[node + way] = total
                    before[node + way] = node, output
        outputs, node = list[bytes](), end
        while node in before:
            node, output = before[node]
            outputs.append(output)
        return b"".join(reversed(outputs)).decode()

    def _sorted(self, start: Node, labels: list[int]) -> Nodes:
        """The nodes on all paths to the end: each before those it leads to, the last to be left by
        a search in depth first."""
        alive = self._alive(labels)
        if not alive[0]:
            return []
        left, seen = Nodes(), {start}
        stack = [self._up_to_choice(start, labels, alive, seen)]
        while stack:
            nodes, rest = stack[-1]
            for _, _, way, _, _ in rest:
                node = nodes[-1][0] + way
                if node not in seen:
                    seen.add(node)
                    stack.append(self._up_to_choice(node, labels, alive, seen))
                    break
            else:
                left += reversed(nodes)
                stack.pop()
        return left[::-1]

    def _up_to_choice(
        self, node: Node, labels: list[int], alive: list[set[int]], seen: set[Node]
    ) -> tuple[Nodes, Iterator[Edge]]:
        """The nodes from this one on, up to the first with a choice, and the edges to choose from.
        From all of them a path leads to the end."""
        at, state = divmod(node, self._transducer.size)
        state += DONE
        nodes = Nodes()
        while at < len(labels):
            edges = self._edges[labels[at]][state]
            if len(edges) > 1:
                ahead, steps = alive[at + 1], self._steps[labels[at]]
                edges = [
                    edge
                    for edge in edges
                    if (edge[1] in ahead if edge[0] else not ahead.isdisjoint(steps[edge[1]]))
                ]
            nodes.append((node, edges))
            if len(edges) > 1:
                return nodes, iter(edges)
            ((label, state, way, _, _),) = edges
            node, at = node + way, at + (label > 0)
            if node in seen:
                return nodes, iter(())
            seen.add(node)
        return [*nodes, (node, [])], iter(())

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
        if len(arcs) == 1 and not arcs[0][0]:
            steps = self[arcs[0][1]]
        else:
            found = [self[arc[1]] for arc in arcs if not arc[0] and label in consumes(arc[1])]
            steps = frozenset(arc[1] for arc in arcs if arc[0] == label).union(*found)
            steps = self._kept.setdefault(steps, steps)
        self[state] = steps
        return steps


class _Edges(dict[int, list[Edge]]):
    """Those that a path may take from a state where a byte is next; found out when they are asked
    for."""

    def __init__(self, transducer: Transducer, label: int) -> None:
        self._transducer, self._label = transducer, label

    def __missing__(self, state: int) -> list[Edge]:
        consumes, size = self._transducer.consumes, self._transducer.size
        self[state] = edges = [
            (label, target, target - state + size * (label > 0), weight, output)
            for label, target, weight, output in self._transducer.arcs(state)
            if (label == self._label if label else self._label in consumes(target))
        ]
        return edges
