"""Trains the speech tokenizer: it hears which digits the codes of a voice have.

The codes of the teacher are known by its durations, at any pace. No window is heard twice in the
same way: pace, formants, loudness and noise change. Speech without durations gets its codes by
the likeliest path through its phonemes. Knows no text and no LM.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import S3Config
from cosyserve.models.encoders.s3 import BOUND, S3Tokenizer
from training import codes, loop
from training.data import MARKS, PAUSE, SILENCE, STRESS, UNKNOWN, Corpus
from training.sizes import NANO

WINDOW = 96  # tokens
BATCH = 64
PEAK_RATE = 1e-3
DROPOUT = 0.1
EDGE, STEEP = math.atanh(0.5 / BOUND), 8.0  # of rounding, and how soon a digit is certain
UNHEARD_PART = 0.015  # of the corpus, its last voices, is never learnt from
BINS = 128  # of what is heard
MASKED_BINS = 16  # at most
SKIPPED = -6.0  # score of leaving out a mark that should be said


def scores(pre_quant: Tensor) -> Tensor:
    """[...] before rounding -> log-probabilities [..., 3] that it is meant as -1, 0, 1."""
    low, high = STEEP * (pre_quant + EDGE), STEEP * (pre_quant - EDGE)
    middle = F.logsigmoid(low) + F.logsigmoid(-high)
    return torch.stack((F.logsigmoid(-low), middle, F.logsigmoid(high)), -1)


class Windows:
    """Random windows of all takes, heard or (from the end of the original) unheard."""

    def __init__(self, corpus: Corpus, takes: list[codes.Take]) -> None:
        self.corpus = corpus
        self.size = min(WINDOW, corpus.tokens // 8)
        unheard = max(2 * self.size, int(UNHEARD_PART * corpus.tokens))
        border = codes.FRAMES * (corpus.tokens - unheard)
        parts = [(take, take.source < border) for take in takes]
        self.heard = sum(int(part.sum()) for _, part in parts)
        parts.append((takes[0], takes[0].source >= border))
        self.codes = torch.cat([take.codes[part] for take, part in parts]).to(self.device)
        self.source = torch.cat([take.source[part] for take, part in parts]).to(self.device)
        self.pace = torch.cat([take.pace[part] for take, part in parts]).to(self.device)

    def draw(self, batch: int) -> tuple[Tensor, Tensor]:
        """What is heard [B, BINS, 4L], codes [B, L]"""
        return self._read(torch.randint(0, self.heard - self.size, (batch, 1), device=self.device))

    def unheard(self, batch: int) -> tuple[Tensor, Tensor]:
        last = len(self.codes) - self.size
        return self._read(torch.randint(self.heard, last, (batch, 1), device=self.device))

    @property
    def device(self) -> torch.device:
        return self.corpus.device

    def _read(self, first: Tensor) -> tuple[Tensor, Tensor]:
        rows = first + torch.arange(self.size, device=self.device)
        frames = torch.arange(codes.FRAMES, device=self.device)
        at = self.source[rows][..., None] + self.pace[rows][..., None] * frames
        whisper = self.corpus["whisper"]
        at = at.flatten(1).clamp(max=len(whisper) - 1.001)
        low = at.long()
        part = (at - low)[..., None].float()
        heard = torch.lerp(whisper[low].float(), whisper[low + 1].float(), part)
        return heard.transpose(1, 2), self.codes[rows]


def disguised(heard: Tensor) -> Tensor:
    """[B, BINS, T] by another speaker, in another room."""
    rows, device = len(heard), heard.device

    def drawn() -> Tensor:
        return torch.randn(rows, 1, 1, device=device)

    bins = torch.arange(BINS, device=device)[:, None]
    at = (bins * (0.06 * drawn()).exp()).clamp(max=BINS - 1.001)  # formants higher or lower
    low = at.long()
    wide = (-1, -1, heard.shape[2])
    below, above = (heard.gather(1, (low + k).expand(wide)) for k in (0, 1))
    heard = torch.lerp(below, above, at - low)
    heard = heard + 0.1 * drawn() + 0.15 * drawn() * (bins / 64 - 1)  # loudness, tilt
    first = (torch.rand(rows, 1, 1, device=device) * BINS).long()
    width = (torch.rand(rows, 1, 1, device=device) * MASKED_BINS).long()
    masked = (bins >= first) & (bins < first + width)
    heard = torch.where(masked, heard.mean((1, 2), keepdim=True), heard)
    return heard + 0.05 * drawn().abs() * torch.randn_like(heard)


def train(
    windows: Windows, config: S3Config, out: Path, *, seconds: float, steps: int, batch: int
) -> list[dict[str, float]]:
    device = windows.device
    model = S3Tokenizer(config).to(device)
    average = loop.Average(model, decay=0.998)
    for block in model.encoder.blocks:
        for part in (block.attn, block.mlp):
            part.register_forward_hook(lambda module, _, y: F.dropout(y, DROPOUT, module.training))
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(model.parameters(), rate, decay=0.05)

    def losses_of(net: S3Tokenizer, heard: Tensor, said: Tensor) -> loop.Losses:
        lengths = torch.full((len(heard),), heard.shape[2], device=device)
        with loop.half_precision(device):
            hidden, _ = net.hidden(heard, lengths)
        found = scores(net.pre_quant(hidden.float()))
        known = said != UNKNOWN
        goal = codes.digits(said.clamp(min=0), config.code_dims) + 1
        wrong = F.cross_entropy(found.flatten(0, 2), goal.flatten(), reduction="none")
        right = (found.argmax(-1) == goal)[..., : codes.MARK_DIGITS].all(-1)
        count = known.sum().clamp(min=1)
        return {
            "digits": (wrong.view(goal.shape).mean(-1) * known).sum() / count,
            "marks": (right & known).sum() / count,
        }

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        heard, said = windows.draw(batch)
        found = losses_of(model, disguised(heard), said)
        found["digits"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.follow()
        return {key: value.detach() for key, value in found.items()}

    def save() -> None:
        loop.save_state(average.copy, out / "speech_tokenizer.pt")
        with torch.no_grad():
            found = losses_of(average.copy.eval(), *windows.unheard(batch))
        print({f"unheard {key}": round(float(v), 4) for key, v in found.items()}, flush=True)

    runner = loop.Loop("speech_tokenizer", out, rate, PEAK_RATE, seconds, steps, save)
    return runner.run(step)


class Hearing:
    """A trained tokenizer that hears whole utterances."""

    def __init__(self, corpus: Corpus, config: S3Config, checkpoint: Path) -> None:
        self.corpus = corpus
        model = S3Tokenizer(config)
        loop.load_state(model, checkpoint)
        torch.backends.cudnn.benchmark = False  # every length is a new one
        self.model = model.to(corpus.device).eval()
        self.octave = codes.octaves(corpus)

    @torch.inference_mode()
    def codes(self, number: int) -> Tensor:
        """Codes of an utterance whose phonemes are known, but not their durations."""
        first, end = self.corpus.start[number].item(), self.corpus.start[number + 1].item()
        digits = scores(self._pre_quant(number))[0].cpu()  # [L, dims, 3]
        mark = aligned(mark_scores(digits), self.corpus.utterances[number]["phonemes"])
        place = digits[:, codes.MARK_DIGITS].argmax(-1)
        octave = self.octave[2 * first : 2 * end].view(-1, 2).mean(1)
        return codes.spelled(mark[None], place[None], octave[None])[0]

    @torch.inference_mode()
    def heard(self) -> Tensor:
        """Codes of all utterances as a stranger's recording gets them: by listening alone."""
        every = range(len(self.corpus.utterances))
        return torch.cat([self.model.codes(self._pre_quant(number))[0] for number in every])

    def _pre_quant(self, number: int) -> Tensor:
        first, end = self.corpus.start[number].item(), self.corpus.start[number + 1].item()
        heard = self.corpus["whisper"][codes.FRAMES * first : codes.FRAMES * end].float().T[None]
        hidden, _ = self.model.hidden(heard, torch.tensor([heard.shape[2]], device=heard.device))
        return self.model.pre_quant(hidden)


def mark_scores(digits: Tensor) -> Tensor:
    """[L, dims, 3] -> [L, marks]"""
    spelling = codes.digits(codes.GRAY[: len(MARKS)], codes.MARK_DIGITS) + 1
    return sum(digits[:, k, spelling[:, k]] for k in range(codes.MARK_DIGITS))


def aligned(found: Tensor, phonemes: str) -> Tensor:
    """The likeliest mark of every token [L], in the order of `phonemes`; they may pause anywhere
    between words. found: scores [L, marks]."""
    said = [SILENCE]
    for mark in phonemes:
        mark = SILENCE if mark in PAUSE else mark
        if mark not in STRESS and mark != said[-1]:
            said.append(mark)
    said += [SILENCE] if said[-1] != SILENCE else []
    marks = torch.tensor([MARKS.index(mark) for mark in said])
    over = torch.where(marks == 0, 0.0, SKIPPED)  # of leaving the mark out
    total = torch.full((len(marks),), -torch.inf)
    total[:2] = found[0, marks[:2]]
    back = []
    for row in found[1:]:
        moves = torch.stack((total, total.roll(1), total.roll(2) + over.roll(1)))
        moves[1, :1] = moves[2, :2] = -torch.inf
        best = moves.max(0)
        back.append(best.indices)
        total = best.values + row[marks]
    at = len(marks) - 2 + int(total[-2:].argmax())
    path = [at]
    for step in reversed(back):
        path.append(path[-1] - int(step[path[-1]]))
    return marks[path[::-1]]


def main() -> None:
    given = loop.arguments(__doc__, seconds=300).parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    corpus = Corpus.load(given.data, given.device)
    config = NANO.speech_tokenizer
    assert config
    takes = codes.takes(corpus)
    if not given.resume:  # a finished tokenizer must not change: voices are made with it
        windows = Windows(corpus, takes)
        batch = given.batch or BATCH
        train(windows, config, given.out, seconds=given.seconds, steps=given.steps, batch=batch)
    hearing = Hearing(corpus, config, given.out / "speech_tokenizer.pt")
    said = [list(take.codes.split(take.lengths.tolist())) for take in takes]
    for number in (corpus["phone"][2 * corpus.start[:-1]] == UNKNOWN).nonzero()[:, 0].tolist():
        heard = hearing.codes(number)
        for rows in said:
            rows[number] = heard
    together = [(torch.cat(rows).short(), torch.tensor([*map(len, rows)])) for rows in said]
    torch.save(together[0][0], given.out / "codes.pt")
    torch.save(hearing.heard().short().cpu(), given.out / "heard.pt")
    torch.save(together, given.out / "takes.pt")


if __name__ == "__main__":
    main()
