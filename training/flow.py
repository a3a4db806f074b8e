"""Trains the flow: speech codes and a speaker become mel frames, by matching straight paths.

Rows are windows that begin with an utterance and run on into others of the same voice, so a
leading part can serve as prompt, with the codes that a tokenizer hears in it, as a stranger's has.
Some rows do not say who speaks: the prompt has to; and it has to say through which microphone, for
the spectra of some rows are bent. The encoder sees no speaker: trained for long
it knows utterances, and whose they are, by heart. So it learns in a short run only, at first or
with new sentences, and parts of it are left out at random. Knows no text and no vocoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import FlowConfig
from cosyserve.models.flow.flow import Flow, FlowBatch
from cosyserve.models.flow.masks import attention_bias
from training import loop
from training.data import Corpus
from training.sizes import NANO

WINDOW = 200  # tokens: 8 s, eight chunks of the streaming mask
BATCH = 32
PEAK_RATE = 1e-3
PROMPT_PART = 0.75  # of the rows have one
LONGEST_PROMPT = 0.7  # of the window
HEARD_PART = 0.5  # of the prompts have the tokenizer's codes
UNNAMED_PART = 0.2  # of the rows with a prompt of at least so many tokens have no embedding
TELLING = 40
BENT_PART = 0.5  # of these rows
RIPPLES, RIPPLE = 5, 0.3  # of what is added to their log mel, and the deviation of each
FREE_PART = 0.2  # of the rows learn to speak without any condition, for guidance
DROPOUT = 0.1  # of what the encoder's layers say, while it learns


@dataclass(frozen=True)
class Batch:
    """codes [B, T], mel [B, 80, 2T], speaker [B, E]; the leading frames that are given, zero after
    them, and which those are: prompt [B, 80, 2T], given [B, 1, 2T]."""

    codes: Tensor
    mel: Tensor
    speaker: Tensor
    prompt: Tensor
    given: Tensor


class Rows:
    """Random windows of the corpus with their speakers; `heard` are the tokenizer's codes."""

    def __init__(
        self, corpus: Corpus, codes: Tensor, heard: Tensor, embeddings: Tensor, batch: int
    ) -> None:
        self.corpus, self.batch = corpus, batch
        self.window = min(WINDOW, corpus.tokens // 4)
        corpus.arrays |= {"codes": codes.to(corpus.device), "heard": heard.to(corpus.device)}
        own = embeddings.to(corpus.device)
        voices = range(len(corpus.voices))
        self.mean = torch.stack([F.normalize(own[corpus.voice == v]).mean(0) for v in voices])
        self.own = own
        voice, starts = corpus.voice_of_tokens(), corpus.start[:-1]
        last = (starts + self.window - 1).clamp(max=corpus.tokens - 1)
        same = (voice[starts] == voice[last]) & (starts + self.window <= corpus.tokens)
        self.choices = same.nonzero()[:, 0]
        # Some other utterance of the same voice lends its embedding.
        self.first = torch.searchsorted(
            corpus.voice, torch.arange(len(voices) + 1, device=own.device)
        )

    @classmethod
    def load(cls, corpus: Corpus, work: Path, batch: int) -> Rows:
        """From what tokenizer and speaker encoder left in the working folder."""
        codes, heard, embeddings = (
            torch.load(work / f"{name}.pt", weights_only=True)
            for name in ("codes", "heard", "embeddings")
        )
        return cls(corpus, codes, heard, embeddings, batch)

    def draw(self) -> Batch:
        device = self.corpus.device
        pick = torch.randint(0, len(self.choices), (self.batch,), device=device)
        row = self.choices[pick]
        start, voice = self.corpus.start[row], self.corpus.voice[row]
        codes = self.corpus.windows("codes", start, self.window).long()
        mel = self.corpus.windows("mel", start, self.window).float().transpose(1, 2)
        count = self.first[voice + 1] - self.first[voice]
        part = torch.rand(self.batch, device=device)
        other = self.first[voice] + (part * count).long().clamp(max=count - 1)
        typical = torch.rand(self.batch, 1, device=device) < 0.5
        speaker = torch.where(typical, self.mean[voice], self.own[other])
        length = (torch.rand(self.batch, 1, device=device) * LONGEST_PROMPT * self.window).long()
        length = length * self._some(PROMPT_PART)
        telling = length >= TELLING
        mel = mel + (self._ripples(mel.shape[1]) * (telling & self._some(BENT_PART)))[..., None]
        prompted = torch.arange(self.window, device=device) < length
        heard = self.corpus.windows("heard", start, self.window).long()
        codes = torch.where(prompted & self._some(HEARD_PART), heard, codes)
        speaker = speaker * ~(self._some(UNNAMED_PART) & telling)
        given = prompted.repeat_interleave(2, dim=1)[:, None]
        return Batch(codes, mel, speaker, mel * given, given)

    def _ripples(self, bins: int) -> Tensor:
        """A smooth curve over the bins for every row, [B, bins]."""
        device = self.corpus.device
        wave = torch.arange(1, RIPPLES + 1, device=device)[:, None]
        at = torch.linspace(0, math.pi, bins, device=device)
        return RIPPLE * torch.randn(self.batch, RIPPLES, device=device) @ torch.cos(wave * at)

    def _some(self, part: float) -> Tensor:
        """Such a part of the rows, [B, 1]."""
        return torch.rand(self.batch, 1, device=self.corpus.device) < part


def conditions(
    flow: Flow, codes: Tensor, speaker: Tensor, streaming: bool
) -> tuple[Tensor, Tensor]:
    """mu [B, mel, 2T] and the projected speaker [B, mel]."""
    size = codes.shape[1]
    lengths = torch.full((len(codes),), size, device=codes.device)
    batch = FlowBatch(codes, lengths, (size,) * len(codes), None, size, speaker, speaker)
    return flow.conditions(batch, streaming), flow.speaker(speaker)


def encoder_of(flow: Flow) -> nn.ModuleList:
    """All that makes mu of codes."""
    return nn.ModuleList([flow.input_embedding, flow.encoder, flow.encoder_proj])


def forgetful(flow: Flow) -> None:
    """From now on parts of what the encoder's layers say are left out."""
    blocks = [*flow.encoder.encoders, *flow.encoder.up_encoders]
    layers = [flow.input_embedding]
    layers += [layer for b in blocks for layer in (b.self_attn.linear_out, b.feed_forward["w_2"])]
    for layer in layers:
        layer.register_forward_hook(lambda _layer, _given, said: F.dropout(said, DROPOUT))


def train(
    rows: Rows,
    config: FlowConfig,
    out: Path,
    *,
    seconds: float,
    steps: int,
    resume: bool = False,
    encoder: bool = False,
    fused: bool = False,
) -> list[dict[str, float]]:
    """`encoder`: it learns on where a flow goes on; else it is left as it is."""
    device = rows.corpus.device
    model = Flow(config)
    if resume:
        loop.load_state(model, out / "flow.pt")
    learns = encoder or not resume
    encoder_of(model).requires_grad_(learns)
    model = model.to(device)
    average = loop.Average(model)
    if learns:
        forgetful(model)
    if fused:
        loop.fuse([model.encoder, model.estimator])
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(model.parameters(), rate)

    def one(streaming: bool) -> Tensor:
        batch = rows.draw()
        mel, given = batch.mel, batch.given
        chunk = 2 * config.encoder.chunk if streaming else 0
        with loop.half_precision(device):
            mu, speaker = conditions(model, batch.codes, batch.speaker, streaming)
        near = (mu.float() - mel).abs().mean()  # the encoder learns faster with a goal of its own
        kept = (torch.rand(len(mel), 1, 1, device=device) >= FREE_PART).float()
        t = 1 - torch.cos(torch.rand(len(mel), 1, 1, device=device) * math.pi / 2)
        noise = torch.randn_like(mel)
        x = (1 - t) * noise + t * mel
        with loop.half_precision(device):
            bias = attention_bias(None, mel.shape[2], chunk, mu)
            known = mu * kept, speaker * kept[:, 0], batch.prompt * kept
            v = model.estimator(x, *known, t[:, 0, 0], bias)
        wrong = (v.float() - (mel - noise)).abs() * ~given
        matching = wrong.sum() / (~given).sum() / mel.shape[1]
        (matching + 0.2 * near).backward()
        return matching.detach()

    def step(name: str, streaming: bool) -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        matching = one(streaming)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.follow()
        return {name: matching}

    def save() -> None:
        loop.save_state(average.copy, out / "flow.pt")

    runner = loop.Loop("flow", out, rate, PEAK_RATE, seconds, steps, save)
    return runner.run(partial(step, "whole", False), partial(step, "streamed", True))


def main() -> None:
    parser = loop.arguments(__doc__, seconds=720)
    parser.add_argument(
        "--encoder", action="store_true", help="with --resume: the encoder learns on, too"
    )
    given = parser.parse_args()
    loop.begin(given.seed)
    corpus = Corpus.load(given.data, given.device)
    assert NANO.flow
    rows = Rows.load(corpus, given.out, given.batch or BATCH)
    sizes = {"seconds": given.seconds, "steps": given.steps, "fused": given.compile}
    train(rows, NANO.flow, given.out, resume=given.resume, encoder=given.encoder, **sizes)


if __name__ == "__main__":
    main()
