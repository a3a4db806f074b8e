"""Text that arrives as a language model writes it: how much of it is held back, and for how long.

    python -m benchmarks.readiness [--json FILE]

Texts come one character at a time, to the tokens alone and to the tokens behind the readiness gate.
A character waits from its coming until it is released. Tokens need whole words anyway: held is what
waits longer than that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, run
from cosyserve.bench.sentences import ENGLISH, MANDARIN
from cosyserve.text.arriving.gate import ReadinessGate
from cosyserve.text.language import Language, detect
from tests.text import arriving

CHINESE = Language.CHINESE
SPANS = Path(arriving.__file__).with_name("spans.tsv")
ENGLISH_CARRIER = "As far as we know, it was {} that they wanted to have."
CHINESE_CARRIER = "据我们所知，他们想要的是{}这样的东西。"


def delays(text: str) -> list[int]:
    """How many more characters had to come, for every character that is no part of a last word."""
    gate, out, waited = ReadinessGate(), 0, list[int]()
    for arrived in range(1, len(text) + 1):
        gate.push(text[arrived - 1])
        released = arrived - gate.held
        waited += [arrived - at - 1 for at in range(out, released)]
        out = max(out, released)
    return waited


def without_gate(text: str) -> list[int]:
    """The same for tokens alone, which need the end of a word, and what follows a mark."""
    waited, start = list[int](), 0
    for at, character in enumerate(text):
        wide = not character.isascii()
        if character == " " or wide:
            waited += [at - one for one in range(start, at)]
            start = at
        if wide and character.isalpha():
            waited.append(0)
            start = at + 1
    return waited


def added(texts: Sequence[str]) -> tuple[float, float, int]:
    """Share of characters that wait longer than to the end of their word; mean delay; the longest,
    both beyond that end."""
    extra = [
        max(0, gate - word)
        for text in texts
        for gate, word in zip(delays(text), without_gate(text), strict=False)
    ]
    return statistics.mean(e > 0 for e in extra), statistics.mean(extra), max(extra)


def cpu_seconds_per_character(texts: Sequence[str]) -> float:
    started = time.process_time()
    for text in texts:
        delays(text)
    return (time.process_time() - started) / sum(map(len, texts))


def measure() -> list[Figure]:
    spans = [line.split("\t")[0] for line in SPANS.read_text("utf-8").splitlines()]
    english = [ENGLISH_CARRIER.format(span) for span in spans if detect(span) is not CHINESE]
    chinese = [CHINESE_CARRIER.format(span) for span in spans if detect(span) is CHINESE]
    kinds = {
        "plain English": (list(ENGLISH), 0.02),
        "plain Chinese": (list(MANDARIN), 0.02),
        "English with a number in every sentence": (english, 0.5),
        "Chinese with a number in every sentence": (chinese, 0.5),
    }
    figures = []
    for name, (texts, goal) in kinds.items():
        delays(texts[0])
        share, mean, longest = added(texts)
        detail = f"{mean:.2f} characters on average, {longest} at most; {len(texts)} texts"
        figures.append(Figure(f"{name}: held", 100 * share, 100 * goal, "%", detail=detail))
        micros = 1e6 * cpu_seconds_per_character(texts)
        figures.append(Figure(f"{name}: CPU a character", micros, 200, "us"))
    return figures


if __name__ == "__main__":
    run(measure, __doc__ or "")
