"""Trains the speech LM: phonemes in, speech codes out.

Half of the examples have a prompt of the same voice in front. Every utterance is heard in several
takes, a little faster or slower, so that a few hours are not learnt by heart. Knows no audio.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.text import TextTokenizer
from training import loop, text
from training.codes import separated
from training.data import Corpus
from training.sizes import NANO, TEXT_TOKENS

LENGTHS = (128, 192, 288, 384, 512)  # ids of an example at most: each has batches of its own
POSITIONS = 49_152  # of a batch
PEAK_RATE = 1.5e-3
MISHEARD = 0.1  # of the codes in context are wrong: the model will make mistakes too
DROPOUT = 0.15  # a few hours of speech are learnt by heart without it
HELD_OUT = 50  # every so manieth utterance is never learnt from


class Examples:
    """Rows [sos] text [task] speech [eos], to learn from or held out."""

    def __init__(self, config: LMConfig) -> None:
        self.config = config
        self.learnt: list[list[int]] = []
        self.held_out: list[list[int]] = []

    def row(self, words: list[int], codes: list[int]) -> list[int]:
        config = self.config
        speech = [config.text_vocab + code for code in (*codes, config.eos)]
        return [config.sos, *words, config.task, *speech]


def tables(rows: list[list[int]], device: torch.device) -> dict[int, Tensor]:
    """Rows by length, padded with -1; longer ones are left out."""
    found: dict[int, Tensor] = {}
    for shorter, length in pairwise((0, *LENGTHS)):
        fitting = [row for row in rows if shorter < len(row) <= length]
        if fitting:
            table = torch.full((len(fitting), length), -1, dtype=torch.int16)
            for line, row in zip(table, fitting, strict=True):
                line[: len(row)] = torch.tensor(row, dtype=torch.int16)
            found[length] = table.to(device)
    return found


def build(
    corpus: Corpus, takes: list[list[list[int]]], config: LMConfig, tokenizer: TextTokenizer
) -> Examples:
    """`takes`: codes of every utterance, several times over; the first take is the original.

    Every utterance stands alone once per take, and once behind another of its voice.
    """
    examples = Examples(config)
    words = [tokenizer.encode(u["phonemes"]) for u in corpus.utterances]
    of_voice: dict[str, list[int]] = {}
    for i, utterance in enumerate(corpus.utterances):
        of_voice.setdefault(utterance["voice"], []).append(i)
    for utterances in of_voice.values():
        learnt = [i for i in utterances if i % HELD_OUT]
        for i in utterances:
            for spoken in takes if i % HELD_OUT else takes[:1]:
                other = random.choice(learnt)
                rows = examples.learnt if i % HELD_OUT else examples.held_out
                rows.append(examples.row(words[i], spoken[i]))
                rows.append(examples.row(words[other] + words[i], spoken[other] + spoken[i]))
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
    loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), ignore_index=-100)
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
    positions: int,
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
    learnt, held_out = tables(examples.learnt, device), tables(examples.held_out, device)

    def draw(table: Tensor, count: int) -> Tensor:
        return table[torch.randint(0, len(table), (count,), device=device)]

    def save() -> None:
        loop.save_state(average.copy, out / "lm.pt")

    def step(length: int) -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        loss, right = loss_of(model, draw(learnt[length], positions // length), MISHEARD)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.follow()
        losses = {f"loss{length}": loss.detach(), f"right{length}": right}
        if length in held_out:
            with torch.no_grad():
                unheard, _ = loss_of(average.copy, draw(held_out[length], 16), 0.0)
            losses[f"unheard{length}"] = unheard
        return losses

    runner = loop.Loop("lm", out, rate, PEAK_RATE, seconds, steps, save)
    return runner.run(*(partial(step, length) for length in learnt))


def main() -> None:
    given = loop.arguments(__doc__, seconds=240).parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    assert NANO.lm
    corpus = Corpus.load(given.data)
    file = given.out / "tokenizer.json"
    if not given.resume:  # a trained LM knows its marks by number
        text.write([u["phonemes"] for u in corpus.utterances], TEXT_TOKENS, file)
    takes = [
        [
            separated(utterance["phonemes"], row.tolist())
            for utterance, row in zip(corpus.utterances, codes.split(lengths.tolist()), strict=True)
        ]
        for codes, lengths in torch.load(given.out / "takes.pt", weights_only=True)
    ]
    examples = build(corpus, takes, NANO.lm, TextTokenizer.from_json(file))
    print(f"{len(examples.learnt)} examples", flush=True)
    device = torch.device(given.device)
    sizes = {"seconds": given.seconds, "steps": given.steps, "positions": POSITIONS}
    more = {"resume": given.resume, "fused": given.compile}
    train(examples, NANO.lm, given.out, device, **sizes, **more)


if __name__ == "__main__":
    main()
