"""How well the times of words agree with speech whose times are known.

    python -m benchmarks.word_times --flite
    python -m benchmarks.word_times --corpus CORPUS
    python -m benchmarks.word_times --nano --whisper MODEL

`--flite`: voices of the program flite, which tells where each of its phones ends. `--corpus`: those
of the training corpus that the listener was not trained with, English and Mandarin, by their
teacher's durations. `--nano`: the shipped voice by a recogniser (faster-whisper), whose own times
are rough. Speech is fed in chunks as a server makes them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.word_times.speeches import Timed, flite, nano, teacher
from cosyserve.alignment.aligner import Aligner, WordTime
from cosyserve.contracts import SAMPLE_RATE, Floats

FLITE_VOICES = ("slt", "rms", "kal16")
HELD_OUT = ("am_puck", "bf_isabella", "zm_yunxi")  # as `training.listener` says
FIRST_CHUNK = 1.0  # seconds; each chunk is as long as all before it
TINY = 480  # samples


@dataclass(frozen=True)
class Result:
    source: str
    errors: list[float]  # seconds, of starts of words
    words_off: list[int]  # words between the right one and the one that is marked in its middle
    delays: list[float]  # seconds of speech between a word's end and when it was told
    cost: float  # seconds of computing
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flite", action="store_true")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--nano", action="store_true")
    parser.add_argument("--whisper", help="a model of faster-whisper, for --nano")
    parser.add_argument("--limit", type=int, default=120, help="speeches a voice")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    speeches: list[Iterable[Timed]] = []
    if given.flite:
        speeches += [flite(voice, given.limit) for voice in FLITE_VOICES]
    if given.corpus:
        speeches += [teacher(given.corpus, voice, given.limit) for voice in HELD_OUT]
    if given.nano:
        speeches.append(nano(given.whisper, given.limit))
    rows = []
    for group in speeches:
        results = [judged(speech) for speech in group]
        rows.append(summary(results))
        print(json.dumps(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), "utf-8")


def judged(speech: Timed) -> Result:
    """Fed in chunks as a server makes them, and again in tiny ones, to see when a word is told."""
    began = time.process_time()
    told = [word for words in fed(speech, chunks(speech.samples)) for word in words]
    cost = time.process_time() - began
    pieces = [speech.samples[at : at + TINY] for at in range(0, len(speech.samples), TINY)]
    tiny = list(fed(speech, pieces))
    if [word for words in tiny for word in words] != told:
        raise AssertionError(f"other times in other chunks: {speech.text}")
    delays = [
        (number + 1) * TINY / SAMPLE_RATE - word.end
        for number, words in enumerate(tiny[:-1])
        for word in words
    ]
    if len(told) != len(speech.starts):
        raise AssertionError(f"other words: {speech.text}")
    starts = [word.start for word in told]
    known = [number for number, start in enumerate(speech.starts) if start is not None]
    return Result(
        speech.source,
        [abs(starts[n] - (speech.starts[n] or 0.0)) for n in known],
        [off_by(starts, speech.starts, n) for n in known],
        delays,
        cost,
        len(speech.samples) / SAMPLE_RATE,
    )


def fed(speech: Timed, pieces: Iterable[Floats]) -> Iterator[list[WordTime]]:
    """The words that are told with each piece, and in the end."""
    aligner = Aligner(speech.language)
    aligner.push_text(speech.text)
    aligner.end_text()
    for piece in pieces:
        yield aligner.push(piece)
    yield aligner.finish()


def off_by(starts: list[float], true: list[float | None], number: int) -> int:
    """Words between the one that is heard, in its middle, and the one that is marked then."""
    begin, following = true[number], true[number + 1] if number + 1 < len(true) else None
    assert begin is not None
    middle = begin + 0.1 if following is None else (begin + following) / 2
    return abs(int(np.searchsorted(starts, middle, "right")) - 1 - number)


def chunks(samples: Floats) -> Iterator[Floats]:
    at, size = 0, int(FIRST_CHUNK * SAMPLE_RATE)
    while at < len(samples):
        yield samples[at : at + size]
        at += size
        size = at


def summary(results: list[Result]) -> dict[str, object]:
    errors = np.array([e for result in results for e in result.errors])
    off = np.array([o for result in results for o in result.words_off])
    delays = np.array([d for result in results for d in result.delays] or [0.0])
    return {
        "source": results[0].source,
        "speeches": len(results),
        "words": len(errors),
        "median_ms": round(1000 * float(np.median(errors))),
        "p90_ms": round(1000 * float(np.quantile(errors, 0.9))),
        "within_100_ms": round(float((errors <= 0.1).mean()), 3),
        "right_word": round(float((off == 0).mean()), 3),
        "within_one_word": round(float((off <= 1).mean()), 3),
        "told_behind_its_end_ms": [round(1000 * float(np.quantile(delays, q))) for q in (0.5, 1)],
        "cost": round(sum(r.cost for r in results) / sum(r.seconds for r in results), 4),
    }


if __name__ == "__main__":
    main()
