"""Trains the speech LM: text in, speech codes out.

Half of the spoken examples have a prompt of the same voice in front. Without a prompt only
American voices and the human are learnt from, since text alone does not say which accent is
meant. Imagined speech (see `imagined`) carries a mark in front of its text, which no request
has. Knows no audio.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import LMConfig
from cosyserve.models.lm import SpeechLM
from cosyserve.text import TextTokenizer
from training import loop, text
from training.data import Corpus
from training.imagined import Imagination
from training.sizes import NANO, TEXT_TOKENS

LENGTH = 288  # ids of an example at most
BATCH = 256
PEAK_RATE = 1.5e-3
MISHEARD = 0.2  # of the codes in context are wrong: the model will make mistakes too
DROPOUT = 0.3  # a few hours of speech are learnt by heart without it
HELD_OUT = 50  # every so manieth utterance is never learnt from
BRITISH = "b"
MARK = "[accent]"  # a special token that stands in front of imagined speech
SHARES = {"alone": 0.2, "prompted": 0.4, "imagined": 0.4}  # of a batch


class Examples:
    """Rows [sos] text [task] speech [eos], padded with -1, of several kinds."""

    def __init__(self, config: LMConfig, tokenizer: TextTokenizer, length: int = LENGTH) -> None:
        self.config, self.tokenizer, self.length = config, tokenizer, length
        self.rows: dict[str, list[list[int]]] = {}

    def add(self, kind: str, words: list[int], codes: list[int]) -> None:
        config = self.config
        row = [config.sos, *words, config.task]
        row += [config.text_vocab + code for code in (*codes, config.eos)]
        if len(row) <= self.length:
            self.rows.setdefault(kind, []).append(row)

    def table(self, kind: str, device: torch.device) -> Tensor:
        rows = self.rows[kind]
        table = torch.full((len(rows), self.length), -1, dtype=torch.int16)
        for line, row in zip(table, rows, strict=True):
            line[: len(row)] = torch.tensor(row, dtype=torch.int16)
        return table.to(device)


def build(
    corpus: Corpus,
    codes: Tensor,
    config: LMConfig,
    tokenizer: TextTokenizer,
    pronounced: list[tuple[str, str]],
    length: int = LENGTH,
) -> Examples:
    examples = Examples(config, tokenizer, length)
    start, said = corpus.start.tolist(), codes.tolist()
    labels = corpus["phone"].tolist()
    spoken = [said[a:b] for a, b in pairwise(start)]
    words = [tokenizer.encode(u["text"]) for u in corpus.utterances]
    voices = [u["voice"] for u in corpus.utterances]
    learnt = [i for i in range(len(voices)) if i % HELD_OUT]
    for i, voice in enumerate(voices):
        if not voice.startswith(BRITISH):
            examples.add("alone" if i % HELD_OUT else "held_out", words[i], spoken[i])
    of_voice: dict[str, list[int]] = {}
    for i in learnt:
        of_voice.setdefault(voices[i], []).append(i)
    for i in learnt:
        for other in random.choices(of_voice[voices[i]], k=4):
            examples.add("prompted", words[other] + words[i], spoken[other] + spoken[i])
    heard = [
        (spoken[i], labels[2 * start[i] : 2 * start[i + 1]])
        for i in learnt
        if corpus.utterances[i]["phonemes"] and not voices[i].startswith(BRITISH)
    ]
    imagination = Imagination(corpus.phones, [(c, p) for c, p in heard if -1 not in p])
    mark = tokenizer.encode(MARK)
    for sentence, phonemes in pronounced:
        if imagined := imagination.speak(phonemes):
            examples.add("imagined", mark + tokenizer.encode(sentence), imagined)
    return examples


def loss_of(model: SpeechLM, rows: Tensor, misheard: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of speech and its end, and how often the likeliest class is right."""
    config = model.config
    rows = rows.long()
    inputs, targets = rows[:, :-1], rows[:, 1:]
    speech = (inputs >= config.text_vocab) & (inputs < config.text_vocab + config.speech_tokens)
    other = config.text_vocab + torch.randint_like(inputs, 0, config.speech_tokens)
    wrong = speech & (torch.rand(inputs.shape, device=rows.device) < misheard)
    inputs = torch.where(wrong, other, inputs).clamp(min=0)
    asked = (inputs == config.task) | speech
    classes = torch.where(asked & (targets >= 0), targets - config.text_vocab, -100)
    with loop.half_precision(rows.device):
        logits = model.head(model(inputs)).float()
    loss = F.cross_entropy(
        logits.flatten(0, 1), classes.flatten(), ignore_index=-100, label_smoothing=0.02
    )
    known = classes >= 0
    right = ((logits.argmax(-1) == classes) & known).sum() / known.sum().clamp(min=1)
    return loss, right


def train(
    examples: Examples,
    config: LMConfig,
    out: Path,
    device: torch.device,
    *,
    seconds: float,
    steps: int,
    batch: int,
    resume: bool = False,
    fused: bool = False,
) -> list[dict[str, float]]:
    model = SpeechLM(config)
    nn.init.normal_(model.embedding.weight, std=0.5)
    if resume:
        loop.load_state(model, out / "lm.pt")
    model = model.to(device)
    average = loop.Average(model, decay=0.998)
    for layer in model.layers:
        for part in (layer.out, layer.down):
            part.register_forward_hook(lambda module, _, y: F.dropout(y, DROPOUT, module.training))
    if fused:
        loop.fuse(model.layers)
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(model.parameters(), rate, decay=0.1)
    kinds = [kind for kind in ("alone", "prompted", "imagined") if kind in examples.rows]
    tables = {kind: examples.table(kind, device) for kind in [*kinds, "held_out"]}

    def draw(kind: str, count: int) -> Tensor:
        return tables[kind][torch.randint(0, len(tables[kind]), (count,), device=device)]

    def save() -> None:
        loop.save_state(average.copy, out / "lm.pt")

    counts = {kind: max(1, round(SHARES[kind] * batch)) for kind in kinds}

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        rows = torch.cat([draw(kind, count) for kind, count in counts.items()])
        loss, right = loss_of(model, rows, MISHEARD)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.follow()
        with torch.no_grad():
            unheard, found = loss_of(average.copy, draw("held_out", 32), 0.0)
        return {"loss": loss.detach(), "right": right, "unheard": unheard, "found": found}

    return loop.Loop("lm", out, rate, PEAK_RATE, seconds, steps, save).run(step)


def arguments() -> argparse.ArgumentParser:
    parser = loop.arguments(__doc__, seconds=720)
    parser.add_argument("--pronounced", type=Path, help="written by training.pronounce")
    return parser


def main() -> None:
    given = arguments().parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    assert NANO.lm
    corpus = Corpus.load(given.data)
    codes = torch.load(given.out / "codes.pt", weights_only=True)
    pronounced = json.loads(given.pronounced.read_text("utf-8")) if given.pronounced else []
    file = given.out / "tokenizer.json"
    if not file.exists():
        sentences = [u["text"] for u in corpus.utterances] + [s for s, _ in pronounced]
        text.train(sentences, TEXT_TOKENS, file)
    tokenizer = TextTokenizer.from_json(file)
    examples = build(corpus, codes, NANO.lm, tokenizer, pronounced)
    print({kind: len(rows) for kind, rows in examples.rows.items()}, flush=True)
    device = torch.device(given.device)
    batch = given.batch or BATCH
    sizes = {"seconds": given.seconds, "steps": given.steps}
    more = {"resume": given.resume, "fused": given.compile}
    train(examples, NANO.lm, given.out, device, batch=batch, **sizes, **more)


if __name__ == "__main__":
    main()
