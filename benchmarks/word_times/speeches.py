"""Speech of which it is known when each word begins: by the program that made it, by the teacher
that made it, or by a recogniser."""

from __future__ import annotations

import csv
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from cosyserve.alignment.sounds import is_syllable
from cosyserve.audio import resample
from cosyserve.bench.sentences import ENGLISH
from cosyserve.contracts import SAMPLE_RATE, Floats

TEACHER_FRAME, TEACHER_LATE = 600, 1350  # samples
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


# By flite


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


# By the teacher


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


# By a recogniser


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
