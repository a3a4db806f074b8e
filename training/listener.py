"""Trains the listener of `cosyserve.alignment`: which sound is heard in every 20 ms.

    python -m training.listener --corpus CORPUS --out src/cosyserve/alignment/listener.safetensors

Voices that are held out are heard by the benchmark alone.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from cosyserve.alignment.listener import BINS, FLOOR, FRAME, LEAD, MARGIN, WIDTHS, spectrum
from cosyserve.alignment.sounds import (
    ANY,
    CONSONANTS,
    FINAL,
    INITIAL,
    KINDS,
    SILENCE,
    SOUNDS,
    VOWELS,
    is_syllable,
    sounds_of_phonemes,
)

HELD_OUT = frozenset({"am_puck", "bf_isabella", "zm_yunxi"})
TEACHER_FRAME, TEACHER_LATE = 600, 1350  # samples, as in `data.py`
QUIET, QUIET_FRAMES = 0.004, 4  # root mean square of a frame; so many of them are silence
PAUSES = ',.!?;:—…"“”() '
SYLLABLE_DEVIATION = 0.35  # of the logarithm
CHANNELS = 64
CROP, BATCH = 100, 64  # frames, crops
RATE = 2e-3  # of learning, at its highest


@dataclass(frozen=True)
class Utterance:
    voice: str
    language: str
    rows: npt.NDArray[np.float16]  # [2 * (frames + MARGIN), BINS]
    labels: npt.NDArray[np.int8]  # [frames], of SOUNDS
    spans: list[tuple[int, float]]  # every sound with its frames
    syllables: int  # written as one character each


def sounds_and_edges(row: dict[str, str]) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Every sound of an utterance (0: silence), and where they begin and end, in samples."""
    durations = [int(frames) for frames in row["durations"].split()]
    signs = ["_", *row["phonemes"], "_"]
    sounds: list[int] = []
    lengths: list[float] = []
    carried = 0.0  # of stress, which belongs to its vowel
    for sign, frames in zip(signs, durations, strict=True):
        heard = sounds_of_phonemes(sign)
        if sign in "ˈˌ":
            carried += frames
        elif heard:
            sounds.append(heard[0])
            lengths.append(frames + carried)
            carried = 0.0
        elif sign in "_" + PAUSES and (sign != " " or frames >= 4):
            sounds.append(0)
            lengths.append(frames + carried)
            carried = 0.0
        elif lengths:  # tones, length, short blanks
            lengths[-1] += frames
    edges = np.cumsum([0.0, *lengths]) * TEACHER_FRAME - int(row["trim"]) - TEACHER_LATE
    return sounds, edges


def hushed(labels: npt.NDArray[np.int8], loud: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Silence where nothing sounds for long, and only there."""
    marks = labels.copy()
    edges = np.flatnonzero(np.diff(np.concatenate([[True], loud, [True]]).astype(int)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        if end - first >= QUIET_FRAMES or first == 0 or end == len(marks):
            marks[first:end] = 0
    said = np.flatnonzero(marks)
    for frame in np.flatnonzero((marks == 0) & loud) if len(said) else ():
        marks[frame] = marks[said[np.abs(said - frame).argmin()]]
    return marks


def read_corpus(folder: Path) -> Iterator[Utterance]:
    with (folder / "index.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    for name in sorted({row["file"] for row in rows if row["durations"]}):
        audio, _ = soundfile.read(folder / name, dtype="float32")
        for row in rows:
            if row["file"] == name and row["durations"]:
                start = int(row["start"])
                yield utterance(row, audio[start : start + int(row["samples"])])


def utterance(row: dict[str, str], samples: npt.NDArray[np.float32]) -> Utterance:
    frames = len(samples) // FRAME
    samples = samples[: frames * FRAME]
    padded = np.pad(samples, (LEAD, LEAD))
    sounds, edges = sounds_and_edges(row)
    centres = (np.arange(frames) + 0.5) * FRAME
    at = np.clip(np.searchsorted(edges, centres, "right") - 1, 0, len(sounds) - 1)
    loud = np.sqrt(np.square(samples.reshape(frames, FRAME)).mean(1)) > QUIET
    labels = hushed(np.array(sounds, np.int8)[at], loud)
    spans = [
        (sound, (end - start) / FRAME)
        for sound, following, (start, end) in zip(
            sounds, [*sounds[1:], 0], pairwise(edges), strict=False
        )
        if sound and following  # before a pause they last through it
    ]
    rows = spectrum(padded).astype(np.float16)
    syllables = sum(map(is_syllable, row["text"]))
    return Utterance(row["voice"], row["lang"], rows, labels, spans, syllables)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [BINS, CHANNELS, CHANNELS, CHANNELS, len(SOUNDS)]
        self.layers = nn.ModuleList(
            nn.Conv1d(inputs, outputs, width, stride=1 if n else 2)
            for n, (width, (inputs, outputs)) in enumerate(
                zip(WIDTHS, pairwise(sizes), strict=True)
            )
        )

    def forward(self, rows: Tensor) -> Tensor:
        """[B, rows, BINS] -> [B, frames, S]"""
        x = rows.transpose(1, 2)
        for n, layer in enumerate(self.layers):
            margin = WIDTHS[n] // 2
            y = layer(x)
            if n < len(self.layers) - 1:
                y = torch.relu(y)
                y = y + x[:, :, margin : x.shape[2] - margin] if n else y
                y = nn.functional.dropout(y, 0.1, self.training)
            x = y
        return x.transpose(1, 2)


def altered(rows: Tensor, draw: np.random.Generator) -> Tensor:
    """Crops [B, rows, BINS] in other voices, louder, duller, in noise."""
    batch, count, _ = rows.shape
    warp = torch.tensor(draw.uniform(0.85, 1.18, batch), dtype=torch.float32)
    place = torch.arange(BINS)[None] * warp[:, None]
    low = place.floor().clamp(0, BINS - 1).long()
    share = (place - low).clamp(0, 1)[:, None]
    high = (low + 1).clamp(max=BINS - 1)

    def taken(index: Tensor) -> Tensor:
        return rows.gather(2, index[:, None].expand(-1, count, -1))

    rows = taken(low) * (1 - share) + taken(high) * share
    gain = torch.tensor(draw.uniform(-1.5, 1.2, (batch, 1, 1)), dtype=torch.float32)
    slope = torch.tensor(draw.normal(0, 0.6, (batch, 1, 1)), dtype=torch.float32)
    wave = torch.tensor(draw.normal(0, 0.4, (batch, 1, 2)), dtype=torch.float32)
    axis = torch.linspace(-1, 1, BINS)
    shape = torch.stack([torch.cos(math.pi * axis), torch.cos(2 * math.pi * axis)], 1)
    rows = rows + gain + slope * axis + wave @ shape.T
    noise = torch.tensor(draw.uniform(-11, -4.5, (batch, 1, 1)), dtype=torch.float32)
    rows = torch.logaddexp(rows, noise + 0.3 * torch.randn_like(rows))
    return rows.clamp(min=math.log(FLOOR))


def train(utterances: list[Utterance], seconds: float, seed: int) -> tuple[Net, npt.NDArray]:
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    training = [u for u in utterances if u.voice not in HELD_OUT and len(u.labels) >= CROP]
    weights = np.array([len(u.labels) * (3.0 if u.language == "zh" else 1.0) for u in training])
    weights /= weights.sum()
    counts = np.bincount(np.concatenate([u.labels for u in training]), minlength=len(SOUNDS))
    priors = np.log((counts + 1) / (counts + 1).sum())
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-3)
    began, step, mean = time.monotonic(), 0, 0.0
    while (share := (time.monotonic() - began) / seconds) < 1:
        rate = RATE * min(1, step / 100) * (0.01 + 0.495 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows, labels = [], []
        for number in draw.choice(len(training), BATCH, p=weights):
            one = training[number]
            at = int(draw.integers(0, len(one.labels) - CROP + 1))
            rows.append(one.rows[2 * at : 2 * (at + CROP + MARGIN)])
            labels.append(one.labels[at : at + CROP])
        x = altered(torch.tensor(np.stack(rows), dtype=torch.float32), draw)
        y = torch.tensor(np.stack(labels), dtype=torch.long)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step, mean = step + 1, 0.98 * mean + 0.02 * loss.item()
        if step % 200 == 0:
            print(f"step {step}, loss {mean:.3f}", flush=True)
    return net.eval(), priors


def accuracy(net: Net, utterances: list[Utterance]) -> float:
    right = total = 0
    with torch.no_grad():
        for one in utterances:
            rows = torch.tensor(one.rows[None].astype(np.float32))
            found = net(rows)[0].argmax(-1).numpy()[: len(one.labels)]
            right += int((found == one.labels).sum())
            total += len(one.labels)
    return right / max(1, total)


def durations(utterances: list[Utterance]) -> npt.NDArray[np.float32]:
    """Mean and deviation of the logarithm of frames, by kind: [K, 2]"""
    logs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for one in utterances:
        for sound, frames in one.spans:
            sign = SOUNDS[sound]
            value = math.log(max(1.0, frames))
            if one.language == "en":
                logs[sign].append(value)
            logs[ANY].append(value)
            if one.language == "zh" and sign in CONSONANTS:
                logs[INITIAL].append(value)
    for letter in [kind for kind in KINDS if kind.startswith("letter")]:
        group = VOWELS if letter[-1] in "aeiouy" else CONSONANTS
        logs[letter] = [value for sign in group for value in logs[sign]]
    characters = [one for one in utterances if one.language == "zh"]
    spoken = sum(int((one.labels > 0).sum()) for one in characters)
    syllable = spoken / max(1, sum(one.syllables for one in characters))
    logs[SILENCE], logs[FINAL] = [0.0], [0.0]
    table = np.array([(np.mean(logs[kind]), np.std(logs[kind])) for kind in KINDS], np.float32)
    initial = float(np.exp(table[KINDS.index(INITIAL), 0]))
    table[KINDS.index(FINAL)] = math.log(syllable - initial), SYLLABLE_DEVIATION
    table[KINDS.index(SILENCE)] = 0.0, 1.0  # of any length
    return table


def save(net: Net, priors: npt.NDArray, lengths: npt.NDArray[np.float32], file: Path) -> None:
    tensors: dict[str, npt.NDArray] = {"priors": priors.astype(np.float32), "durations": lengths}
    for n, layer in enumerate(net.layers):
        assert isinstance(layer, nn.Conv1d)
        assert layer.bias is not None
        kernel = layer.weight.detach().numpy().transpose(2, 1, 0)  # [width, in, out]
        tensors[f"{n}.kernel"] = np.ascontiguousarray(kernel).astype(np.float16)
        tensors[f"{n}.bias"] = layer.bias.detach().numpy().astype(np.float16)
    save_file(tensors, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with index.tsv")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    utterances = list(read_corpus(given.corpus))
    print(f"{len(utterances)} utterances", flush=True)
    net, priors = train(utterances, given.seconds, given.seed)
    for language in ("en", "zh"):
        unheard = [u for u in utterances if u.voice in HELD_OUT and u.language == language]
        print(f"{language}: {accuracy(net, unheard):.3f} of unheard frames")
    save(net, priors, durations([u for u in utterances if u.voice not in HELD_OUT]), given.out)


if __name__ == "__main__":
    main()
