"""A corpus of sentences and recordings becomes arrays that all recipes read.

One token is 40 ms: 960 samples, two mel frames, four frames at 100 Hz. Every utterance is cut to
whole tokens and all arrays share one offset per utterance, counted in tokens. Utterances of a
voice lie side by side. Knows no network.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyserve.audio.features import kaldi_fbank, prompt_mel, whisper_log_mel
from cosyserve.contracts import SAMPLE_RATE, SAMPLES_PER_TOKEN
from training.pitch import pitch

SILENCE = "_"
MARKS = "_ptkʧʃsθfhðvzʒʤdTɡbmnŋlwjɹɜəᵊᵻɪiuʊOQɔYɒɑWIaæɛAʌɐː"  # neighbours sound alike
UNKNOWN = -1  # label of frames whose phoneme nobody knows
STRESS = "ˈˌ"
PAUSE = ',.!?;:—…"“”() '
TEACHER_FRAME = 600  # samples per unit of a duration
TEACHER_LATE = 1350  # samples: marks by their durations come so much later than their sound
QUIET, QUIET_FRAMES = -7.0, 4  # a mean mel below this, for so many frames, is silence
LONG_GAP = 4  # such units: a space this long is heard as a pause
SHORTEST, LONGEST = 15, 400  # tokens
ROWS_PER_JOB = 150

# rows per token of each flat array
PER_TOKEN = {"wave": SAMPLES_PER_TOKEN, "mel": 2, "whisper": 4, "fbank": 4, "f0": 2, "phone": 2}
ADDED = {"flow_mel": 2}  # by other recipes

Row = dict[str, str]


def read_index(folder: Path) -> list[Row]:
    with (folder / "index.tsv").open(encoding="utf-8") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row for row in rows if row["lang"] == "en" and (folder / row["file"]).exists()]


def phone_labels(row: Row, tokens: int) -> list[str]:
    """What is said in every 20 ms: stress belongs to its vowel, a short gap to what came before."""
    if not row["durations"]:
        return [""] * (2 * tokens)
    durations = [int(d) for d in row["durations"].split()]
    formants = float(row.get("formants") or 1)  # a second of this is so many of the teacher's
    marks = [SILENCE, *row["phonemes"], SILENCE]
    heard: list[str] = []
    for k, (mark, duration) in enumerate(zip(marks, durations, strict=True)):
        if mark in STRESS:
            mark = next((m for m in marks[k + 1 :] if m not in STRESS), SILENCE)
        elif mark == " " and duration < LONG_GAP:
            mark = heard[-1] if heard else SILENCE
        if mark in PAUSE:
            mark = SILENCE
        heard += [mark] * duration
    centres = (np.arange(2 * tokens) + 0.5) * SAMPLES_PER_TOKEN / 2 + int(row["trim"])
    at = ((centres * formants + TEACHER_LATE) / TEACHER_FRAME).astype(int)
    return [heard[i] if i < len(heard) else SILENCE for i in at]


def hushed(labels: list[str], mel: npt.NDArray[np.float32]) -> list[str]:
    """Silence where nothing sounds, and only there: the teacher's marks last through its pauses."""
    quiet = np.concatenate(([False], mel.mean(1) < QUIET, [False]))
    edges = np.flatnonzero(np.diff(quiet)).tolist()
    marks = np.array(labels)
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        if end - first >= QUIET_FRAMES or first == 0 or end == len(marks):
            marks[first:end] = SILENCE
        else:
            quiet[first + 1 : end + 1] = False
    said = np.flatnonzero(marks != SILENCE)
    for i in np.flatnonzero((marks == SILENCE) & ~quiet[1:-1]) if len(said) else ():
        marks[i] = marks[said[np.abs(said - i).argmin()]]
    return marks.tolist()


def features(wave: npt.NDArray[np.float32], row: Row) -> dict[str, Any]:
    """All arrays of one utterance; wave [n] float32 at 24 kHz."""
    import soxr

    tokens = len(wave) // SAMPLES_PER_TOKEN
    wave = np.clip(wave[: tokens * SAMPLES_PER_TOKEN], -1.0, 1.0)
    narrow = soxr.resample(wave, SAMPLE_RATE, 16_000).astype(np.float32)
    narrow = np.pad(narrow, (0, max(0, 640 * tokens - len(narrow))))[: 640 * tokens]
    fbank, mel = kaldi_fbank(narrow), prompt_mel(wave)
    labels = phone_labels(row, tokens)
    return {
        "wave": np.round(wave * 32767).astype(np.int16),
        "mel": mel.astype(np.float16),
        "whisper": whisper_log_mel(narrow).T.astype(np.float16),
        "fbank": np.pad(fbank, ((0, 4 * tokens - len(fbank)), (0, 0)), "edge").astype(np.float16),
        "f0": pitch(narrow, 2 * tokens).astype(np.float16),
        "phone": hushed(labels, mel) if row["durations"] else labels,
        "tokens": tokens,
    }


def _read_file(folder: Path, name: str, rows: list[Row]) -> list[tuple[Row, dict[str, Any]]]:
    import soundfile

    first = int(rows[0]["start"])
    end = int(rows[-1]["start"]) + int(rows[-1]["samples"])
    audio, rate = soundfile.read(folder / name, start=first, stop=end, dtype="float32")
    if rate != SAMPLE_RATE:
        raise ValueError(f"{name}: {rate} Hz, expected {SAMPLE_RATE}")
    found = []
    for row in rows:
        start, count = int(row["start"]) - first, int(row["samples"])
        if SHORTEST <= count // SAMPLES_PER_TOKEN <= LONGEST:
            found.append((row, features(audio[start : start + count], row)))
    return found


def prepare(folder: Path, out: Path, workers: int, limit: int = 0) -> None:
    """Reads the corpus (at most `limit` utterances a file) and writes one .npy per array."""
    for library in ("OMP", "OPENBLAS", "MKL"):  # one thread a process, or they fight for the cores
        os.environ[f"{library}_NUM_THREADS"] = "1"
    by_file: dict[str, list[Row]] = {}
    for row in read_index(folder):
        by_file.setdefault(row["file"], []).append(row)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(_read_file, folder, name, rows[at : at + ROWS_PER_JOB])
            for name, rows in ((name, rows[: limit or None]) for name, rows in by_file.items())
            for at in range(0, len(rows), ROWS_PER_JOB)
        ]
        found = [pair for job in jobs for pair in job.result()]
    write(found, out)


def write(found: list[tuple[Row, dict[str, Any]]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    found.sort(key=lambda pair: pair[0]["voice"])
    number = {mark: i for i, mark in enumerate(MARKS)} | {"": UNKNOWN}
    for name in PER_TOKEN:
        parts = [arrays[name] for _, arrays in found]
        if name == "phone":
            parts = [np.array([number[m] for m in part], np.int8) for part in parts]
        np.save(out / f"{name}.npy", np.concatenate(parts))
    utterances = [
        {key: row[key] for key in ("id", "voice", "text", "phonemes")} | {"tokens": a["tokens"]}
        for row, a in found
    ]
    (out / "meta.json").write_text(json.dumps(utterances, ensure_ascii=False), "utf-8")


@dataclass
class Corpus:
    """Arrays on a device; `start` [U + 1] in tokens, `voice` [U] indexes `voices`."""

    folder: Path
    device: torch.device
    voices: list[str]
    utterances: list[dict[str, Any]]
    start: Tensor
    voice: Tensor
    tokens: int
    arrays: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, device: str | torch.device = "cpu") -> Corpus:
        utterances = json.loads((folder / "meta.json").read_text("utf-8"))
        voices = sorted({u["voice"] for u in utterances})
        start = np.cumsum([0, *(u["tokens"] for u in utterances)])
        return cls(
            folder,
            torch.device(device),
            voices,
            utterances,
            torch.tensor(start, device=device),
            torch.tensor([voices.index(u["voice"]) for u in utterances], device=device),
            int(start[-1]),
        )

    def __getitem__(self, name: str) -> Tensor:
        """A flat array, brought to the device when first asked for."""
        if name not in self.arrays:
            array = np.load(self.folder / f"{name}.npy")
            self.arrays[name] = torch.from_numpy(array).to(self.device)
        return self.arrays[name]

    def voice_of_tokens(self) -> Tensor:
        """[tokens] index of the voice."""
        return self.voice.repeat_interleave(self.start.diff())

    def windows(self, name: str, first: Tensor, count: int) -> Tensor:
        """Windows of `count` tokens from tokens `first` [B]: [B, count * rows per token, ...]."""
        rate = (PER_TOKEN | ADDED).get(name, 1)
        rows = first[:, None] * rate + torch.arange(count * rate, device=first.device)
        return self[name][rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with index.tsv")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--limit", type=int, default=0, help="utterances a file; 0: all")
    given = parser.parse_args()
    prepare(given.corpus, given.out, given.workers, given.limit)


if __name__ == "__main__":
    main()
