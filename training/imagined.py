"""Speech codes for sentences that nobody spoke, pieced together from codes of the corpus.

A timeline of phonemes is drawn with durations heard in the same surroundings; each token is then
one that was heard for the same 40 ms of phonemes. It has no melody, but it teaches spelling.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable
from itertools import groupby, pairwise

from training.data import PAUSE, SILENCE, STRESS

Lists = dict[Hashable, list[int]]
MOST_PER_KEY = 200


class Imagination:
    def __init__(self, phones: list[str], utterances: list[tuple[list[int], list[int]]]) -> None:
        """utterances: codes, and labels of every half token (two per code)."""
        self.number = {mark: i for i, mark in enumerate(phones)}
        self.durations: Lists = defaultdict(list)
        self.codes: Lists = defaultdict(list)
        for codes, labels in utterances:
            runs = [(mark, len(list(run))) for mark, run in groupby(labels)]
            edged = [(-1, 0), *runs, (-1, 0)]
            for (left, _), (mark, length), (right, _) in zip(
                edged, edged[1:], edged[2:], strict=False
            ):
                for key in self._nearby(left, mark, right):
                    self._keep(self.durations, key, length)
            for i, code in enumerate(codes):
                for key in self._keys(labels, i):
                    self._keep(self.codes, key, code)

    @staticmethod
    def _nearby(left: int, mark: int, right: int) -> tuple[Hashable, ...]:
        """Surroundings of a phoneme, the narrowest first."""
        return (left, mark, right), (mark, right), mark

    @staticmethod
    def _keep(lists: Lists, key: Hashable, value: int) -> None:
        if len(kept := lists[key]) < MOST_PER_KEY:
            kept.append(value)

    @staticmethod
    def _keys(labels: list[int], i: int) -> tuple[Hashable, ...]:
        """Surroundings of a token, the narrowest first."""
        a, b = labels[2 * i], labels[2 * i + 1]
        left = labels[2 * i - 1] if i else -1
        right = labels[2 * i + 2] if 2 * i + 2 < len(labels) else -1
        return (left, a, b, right), (left, a, b), (a, b), a

    def speak(self, phonemes: str) -> list[int] | None:
        """Codes; None where a phoneme was never heard."""
        marks = [SILENCE]
        for mark in phonemes:
            if mark in STRESS or mark == " ":
                continue
            marks.append(SILENCE if mark in PAUSE else mark)
        marks.append(SILENCE)
        numbers = [number for number, _ in groupby(self.number.get(m, -1) for m in marks)]
        if -1 in numbers:
            return None
        labels: list[int] = []
        for (left, number), (_, right) in pairwise(pairwise([-1, *numbers, -1])):
            near = self._nearby(left, number, right)
            labels += [number] * self._draw(self.durations, near)
        labels = labels[: len(labels) // 2 * 2]
        return [self._draw(self.codes, self._keys(labels, i)) for i in range(len(labels) // 2)]

    @staticmethod
    def _draw(lists: Lists, keys: tuple[Hashable, ...]) -> int:
        for key in keys:
            if heard := lists.get(key):
                return random.choice(heard)
        return 0
