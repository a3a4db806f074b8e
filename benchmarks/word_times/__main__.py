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
import csv
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from cosyserve.alignment.aligner import Aligner, WordTime
from cosyserve.alignment.sounds import is_syllable
from cosyserve.audio import resample
from cosyserve.bench.sentences import ENGLISH
from cosyserve.contracts import SAMPLE_RATE, Floats

FLITE_VOICES = ("slt", "rms", "kal16")
HELD_OUT = ("am_puck", "bf_isabella", "zm_yunxi")  # as `training.listener` says
TEACHER_FRAME, TEACHER_LATE = 600, 1350  # samples
FIRST_CHUNK = 1.0  # seconds; each chunk is as long as all before it
TINY = 480  # samples
TYPED = (
    "Hi there, how can I help you today?",
    "Your order 4821 shipped on March 3rd and should arrive in 2 to 4 days.",
    "The total is $25, including tax.",
    "Sure, I can move your appointment to 10 tomorrow morning.",
    "Dr. Smith will see you in room 12.",
    "I'm sorry, I didn't catch that; could you say it again?",
    "It's 72 degrees and sunny in San Francisco.",
    "Okay, playing some jazz in the kitchen.",
    "You have 3 new messages and 1 missed call.",
    "First, unplug the router. Then wait 30 seconds, and plug it back in.",
    "No problem! Is there anything else I can do for you?",
    "The meeting with Anna was moved from Tuesday to Friday.",
)


@dataclass(frozen=True)
class Timed:
    """A speech, and where its words really begin, in seconds; None: nobody knows."""

    source: str
    text: str
    samples: Floats
    starts: list[float | None]
    language: str = ""


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


# flite


def flite(voice: str, limit: int) -> Iterator[Timed]:
    texts = [*TYPED, *ENGLISH]
    for text in texts[:limit]:
        if speech := flite_speech(voice, text):
            yield speech


def flite_speech(voice: str, text: str) -> Timed | None:
    """None where the words of a sentence can't be found among its phones."""
    tokens = text.split()
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        said = _flite(voice, text, "-psdur", file.name).split()
        samples, rate = soundfile.read(file.name, dtype="float32")
    phones = [entry.rpartition(":")[0] for entry in said]
    ends = [float(entry.rpartition(":")[2]) for entry in said]
    begins = dict(enumerate([0.0, *ends[:-1]]))
    spoken = [n for n, phone in enumerate(phones) if phone != "pau"]
    expected, owners = [], []
    for number, token in enumerate(tokens):
        own = [p for p in _flite(voice, token, "-ps").split() if p != "pau"]
        expected += own
        owners += [number] * len(own)
    heard = [phones[n] for n in spoken]
    matcher = SequenceMatcher(None, expected, heard, autojunk=False)
    if matcher.ratio() < 0.8:
        return None
    starts: list[float | None] = [None] * len(tokens)
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            number = owners[block.a + k]
            first = block.a + k == 0 or owners[block.a + k - 1] != number
            if first:  # else the word's first phone was said in another way
                starts[number] = begins[spoken[block.b + k]]
    wave = resample(samples, rate, SAMPLE_RATE)
    return Timed(f"flite {voice}", text, wave, starts)


@cache
def _flite(voice: str, text: str, what: str, out: str = "none") -> str:
    command = ["flite", "-voice", voice, what, "-o", out, "-t", text]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


# The corpus


def teacher(folder: Path, voice: str, limit: int) -> Iterator[Timed]:
    with (folder / "index.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = 0
    for row in rows:
        if row["voice"] != voice or found >= limit:
            continue
        starts = chinese_starts(row) if row["lang"] == "zh" else english_starts(row)
        if starts is None:
            continue
        start = int(row["start"])
        stop = start + int(row["samples"])
        samples, _ = soundfile.read(folder / row["file"], start=start, stop=stop, dtype="float32")
        found += 1
        yield Timed(f"kokoro {voice}", row["text"], samples, starts)


def begins(row: dict[str, str]) -> list[float]:
    """Seconds at which every phoneme begins."""
    frames = [int(duration) for duration in row["durations"].split()]
    edges = np.cumsum([0, *frames])[1:-1] * TEACHER_FRAME - int(row["trim"]) - TEACHER_LATE
    return [float(edge) / SAMPLE_RATE for edge in edges]


def english_starts(row: dict[str, str]) -> list[float | None] | None:
    times = begins(row)
    words = list(re.finditer(r"\S*\w\S*", row["phonemes"]))
    if len(words) != len(row["text"].split()):
        return None
    return [times[word.start()] for word in words]


def chinese_starts(row: dict[str, str]) -> list[float | None] | None:
    """A syllable is an initial, a final with a tone, and perhaps an n or ŋ."""
    syllable = re.compile(r"[^\W↗↘→↓]*?[aeioɤəɛɨʊuyɚ]+[↗↘→↓](?:[nŋɻ](?![aeiouyɤəɛɨʊjwɥ]))?")
    times = begins(row)
    found = list(syllable.finditer(row["phonemes"]))
    if len(found) != sum(map(is_syllable, row["text"])) or any(c.isascii() for c in row["text"]):
        return None
    return [times[one.start()] for one in found]


# The shipped voice


def nano(model: str | None, limit: int) -> Iterator[Timed]:
    from faster_whisper import WhisperModel

    import cosyserve

    recogniser = WhisperModel(model or "tiny.en", device="cpu", compute_type="int8")
    tts = cosyserve.load("nano")
    for text in [*TYPED, *ENGLISH][:limit]:
        samples = np.concatenate([chunk.samples for chunk in tts.stream(text)])
        narrow = resample(samples, SAMPLE_RATE, 16_000)
        segments, _ = recogniser.transcribe(
            narrow, language="en", beam_size=5, word_timestamps=True
        )
        heard = [word for segment in segments for word in segment.words or ()]
        yield Timed("nano by whisper", text, samples, matched(text, heard))


def matched(text: str, heard: list[object]) -> list[float | None]:
    """Starts of the words that the recogniser has understood."""

    def plain(word: str) -> str:
        return re.sub(r"\W", "", word.lower())

    said, told = [plain(w) for w in text.split()], [plain(w.word) for w in heard]  # type: ignore[attr-defined]
    starts: list[float | None] = [None] * len(said)
    for block in SequenceMatcher(None, said, told, autojunk=False).get_matching_blocks():
        for k in range(block.size):
            starts[block.a + k] = heard[block.b + k].start  # type: ignore[attr-defined]
    return starts


if __name__ == "__main__":
    main()
