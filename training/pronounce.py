"""Trains the pronouncer: letters of a word become phonemes, learnt from dictionaries.

Words sound as the corpus says them, else as a pronunciation dictionary (JSON, word to phonemes)
does. Connectionist temporal classification finds which letter sounds as what. Knows no speech.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.text.pronouncer import LETTERS, SOUNDS_PER_LETTER, Pronouncer
from training import loop
from training.data import STRESS, read_index
from training.dictionaries import read_dictionary

AMERICAN = "a"  # first letter of the voices whose phonemes the dictionary shares
EDGES = '.,!?;:"“”()—…'
LONGEST = 22  # letters of a word, its two ends included
MOST_SOUNDS = 22
HELD_OUT = 40  # every so manieth word of the dictionary is never learnt from
FREQUENT_PART = 0.5  # of a batch are words as often as they are met
BATCH = 2048
PEAK_RATE = 2e-3


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, width, 5, padding=2)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        y = self.conv((self.norm(x) * inside).transpose(1, 2)).transpose(1, 2)
        return x + self.out(F.dropout(F.gelu(y, approximate="tanh"), 0.1, self.training))


class Net(nn.Module):
    """The net that `cosyserve.text.Pronouncer` runs."""

    def __init__(self, sounds: int, width: int = 192, blocks: int = 5) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, SOUNDS_PER_LETTER * sounds)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """letters [B, L], lengths [B] -> [B, L * SOUNDS_PER_LETTER, sounds]"""
        inside = torch.arange(letters.shape[1], device=letters.device) < lengths[:, None]
        x = self.letters(letters)
        for block in self.blocks:
            x = block(x, inside[..., None])
        return self.head(self.norm(x)).unflatten(2, (SOUNDS_PER_LETTER, -1)).flatten(1, 2)


def corpus_words(rows: Iterable[dict[str, str]]) -> dict[str, str]:
    """How the corpus most often pronounces each word."""
    heard: dict[str, Counter[str]] = {}
    for row in rows:
        words, sounds = row["text"].split(), row["phonemes"].split()
        if row["voice"].startswith(AMERICAN) and len(words) == len(sounds):
            for word, sound in zip(words, sounds, strict=True):
                key = word.strip(EDGES).lower()
                heard.setdefault(key, Counter())[sound.strip(EDGES)] += 1
    return {word: sounds.most_common(1)[0][0] for word, sounds in heard.items()}


def split_sounds(phonemes: str) -> list[str]:
    """A stress mark belongs to the sound behind it."""
    sounds: list[str] = []
    for mark in phonemes:
        if sounds and sounds[-1] in STRESS:
            sounds[-1] += mark
        else:
            sounds.append(mark)
    return sounds


class Words:
    """Words that can be learnt, as padded tables."""

    def __init__(self, words: dict[str, str], counts: Counter[str], marks: set[str]) -> None:
        usable = {}
        for word, phonemes in words.items():
            sounds = split_sounds(phonemes)
            slots = SOUNDS_PER_LETTER * (len(word) + 2)
            fits = len(word) + 2 <= LONGEST and len(sounds) <= min(MOST_SOUNDS, slots // 2)
            if word and fits and set(word) <= set(LETTERS[1:]) and set(phonemes) <= marks:
                usable[word] = sounds
        self.words = sorted(usable)
        self.sounds = ["", *sorted({s for sounds in usable.values() for s in sounds})]
        number = {sound: i for i, sound in enumerate(self.sounds)}
        self.letters = torch.zeros(len(self.words), LONGEST, dtype=torch.long)
        self.targets = torch.zeros(len(self.words), MOST_SOUNDS, dtype=torch.long)
        for i, word in enumerate(self.words):
            ids = [LETTERS.index(letter) for letter in f"#{word}#"]
            self.letters[i, : len(ids)] = torch.tensor(ids)
            sounds = [number[s] for s in usable[word]]
            self.targets[i, : len(sounds)] = torch.tensor(sounds)
        self.lengths = torch.tensor([len(word) + 2 for word in self.words])
        self.target_lengths = torch.tensor([len(usable[word]) for word in self.words])
        self.often = torch.tensor([float(counts[word]) ** 0.5 for word in self.words])
        met = self.often > 0
        self.held_out = (torch.arange(len(self.words)) % HELD_OUT == 0) & ~met
        self.often[self.held_out] = 0

    def draw(self, batch: int) -> Tensor:
        frequent = int(FREQUENT_PART * batch) if self.often.sum() > 0 else 0
        plain = torch.where(self.held_out, 0.0, 1.0)
        parts = [torch.multinomial(plain, batch - frequent, replacement=True)]
        if frequent:
            parts.append(torch.multinomial(self.often, frequent, replacement=True))
        return torch.cat(parts)


def right(net: Net, words: Words, rows: Tensor, device: torch.device) -> float:
    """The part of the words whose every sound is right."""
    with torch.no_grad():
        logits = net(words.letters[rows].to(device), words.lengths[rows].to(device))
    good = 0
    for best, row in zip(logits.argmax(-1).tolist(), rows.tolist(), strict=True):
        best = best[: SOUNDS_PER_LETTER * int(words.lengths[row])]
        said = [s for s, before in zip(best, [0, *best[:-1]], strict=True) if s and s != before]
        good += said == words.targets[row, : words.target_lengths[row]].tolist()
    return good / max(1, len(rows))


def train(
    words: Words, out: Path, device: torch.device, *, seconds: float, steps: int, batch: int
) -> list[dict[str, float]]:
    net = Net(len(words.sounds)).to(device)
    average = loop.Average(net)
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(net.parameters(), rate)
    frequent = words.often.topk(min(2000, len(words.words))).indices
    unheard = words.held_out.nonzero()[:2000, 0]

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        rows = words.draw(batch)
        logits = net(words.letters[rows].to(device), words.lengths[rows].to(device))
        lengths = SOUNDS_PER_LETTER * words.lengths[rows]
        loss = F.ctc_loss(
            logits.log_softmax(-1).transpose(0, 1),
            words.targets[rows].to(device),
            lengths,
            words.target_lengths[rows],
        )
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        average.follow()
        return {"loss": loss.detach()}

    def save() -> None:
        model = average.copy.eval()
        state = {key: value.cpu().numpy() for key, value in model.state_dict().items()}
        Pronouncer(state, words.sounds).save(out / "pronouncer.safetensors")
        print(
            f"words right: {right(model, words, frequent, device):.3f} of the frequent, "
            f"{right(model, words, unheard, device):.3f} of the unheard",
            flush=True,
        )

    runner = loop.Loop(
        "pronouncer", out, rate, PEAK_RATE, seconds, steps, save, save_every=30.0, graph=False
    )
    return runner.run(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with index.tsv")
    parser.add_argument(
        "--dictionary",
        type=Path,
        nargs="*",
        default=[],
        help="the best first: JSON, or CMU's .dict",
    )
    parser.add_argument("--sentences", type=Path, help="text that shows how often words are met")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    rows = read_index(given.corpus)
    known: dict[str, str] = {}
    for file in given.dictionary:
        known = {word: said[0] for word, said in read_dictionary(file).items()} | known
    known |= corpus_words(rows)
    texts = [row["text"] for row in rows]
    texts += given.sentences.read_text("utf-8").splitlines() if given.sentences else []
    counts = Counter(word.strip(EDGES).lower() for text in texts for word in text.split())
    marks = {m for r in rows if r["voice"].startswith(AMERICAN) for m in r["phonemes"]}
    words = Words(known, counts, marks | set(STRESS))
    print(f"{len(words.words)} words, {len(words.sounds) - 1} sounds", flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    device, sizes = torch.device(given.device), {"seconds": given.seconds, "steps": given.steps}
    train(words, given.out, device, batch=BATCH, **sizes)


if __name__ == "__main__":
    main()
