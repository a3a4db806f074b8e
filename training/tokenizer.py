"""Trains the speech tokenizer: 25 codes a second that say what is spoken and how, not by whom.

The codes must suffice to name the phoneme of every 20 ms, the pitch relative to the speaker's own,
the loudness and, for one who knows the speaker, the rough spectrum. No window is heard twice in
the same way: pace, formants, loudness and noise change. Knows no text and no LM.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.s3 import S3Config, S3Tokenizer, bounded
from training import loop
from training.data import UNKNOWN, Corpus
from training.sizes import NANO

WINDOW = 96  # tokens
BATCH = 64
PEAK_RATE = 1e-3
DROPOUT = 0.1
UNSTEADY = 0.1  # noise before rounding: codes keep away from the edges
UNHEARD_PART = 0.015  # of the corpus, its last voices, is never learnt from
VOICED_ABOVE = 10.0  # Hz
TAKES = 8  # of every utterance, for the LM
PACES = (0.85, 1.18)  # of windows and takes
BINS = 128  # of what is heard
MASKED_BINS = 16  # at most
MEL_MEAN, MEL_SPREAD = -6.0, 2.5  # about zero and one for the losses


class Listener(nn.Module):
    """Hears codes and says what they mean; thrown away after training.

    What is said must show in a code and its neighbours: so the flow will find it, too.
    """

    def __init__(self, config: S3Config, phones: int, width: int = 256) -> None:
        super().__init__()
        self.phones = phones
        self.enter = nn.Conv1d(config.code_dims, width, 3, padding=1)
        self.hidden = nn.Conv1d(width, width, 1)
        self.meaning = nn.Conv1d(width, 2 * (phones + 3), 1)  # phones, voiced, pitch, loudness
        self.voice = nn.Linear(81, width)
        self.spectrum_hidden = nn.Conv1d(width, width, 3, padding=1)
        self.spectrum = nn.Conv1d(width, 2 * 80, 1)

    def forward(self, codes: Tensor, voice: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """codes [B, L, dims], voice [B, L, 81] -> [B, 2L, phones], [B, 2L, 3], [B, 2L, 80]"""
        x = F.gelu(self.hidden(F.gelu(self.enter(codes.transpose(1, 2)))))
        y = self.meaning(x).transpose(1, 2).unflatten(2, (2, -1)).flatten(1, 2)
        z = F.gelu(self.spectrum_hidden(x + self.voice(voice).transpose(1, 2)))
        mel = self.spectrum(z).transpose(1, 2).unflatten(2, (2, -1)).flatten(1, 2)
        return y[..., : self.phones], y[..., self.phones :], mel


def quantised(pre_quant: Tensor, unsteady: float = 0.0) -> Tensor:
    """Rounded values whose gradient is that of the values before rounding."""
    value = bounded(pre_quant)
    moved = value + unsteady * torch.randn_like(value)
    return value + (moved.round().clamp(-1, 1) - value).detach()


class Traits:
    """What tells the voices of a corpus apart: mean spectrum and pitch."""

    def __init__(self, corpus: Corpus) -> None:
        f0, mel = corpus["f0"].float(), corpus["mel"]
        voice = corpus.voice_of_tokens().repeat_interleave(2)
        heard = f0 > VOICED_ABOVE
        octave = torch.log2(f0.clamp(min=1.0))
        found = []
        for index in range(len(corpus.voices)):
            mine = voice == index
            voiced = octave[mine & heard]
            middle = voiced.median() if len(voiced) else octave.new_zeros(())
            octave[mine] -= middle
            spectrum = (mel[mine].float().mean(0) - MEL_MEAN) / MEL_SPREAD
            found.append(torch.cat((spectrum, middle[None] - 7.0)))
        self.of_voice = torch.stack(found)  # [voices, 81]
        self.octave = torch.where(heard, octave, 0.0)  # [frames] above the voice's middle


@dataclass
class Window:
    """What is heard, and what the codes of it should tell."""

    heard: Tensor  # [B, BINS, 4L]
    voice: Tensor  # [B, L, 81]
    phone: Tensor  # [B, 2L]
    voiced: Tensor  # [B, 2L]
    octave: Tensor  # [B, 2L]
    mel: Tensor  # [B, 2L, 80]


class Windows:
    """Random windows of the corpus, heard or (from its end) unheard."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus, self.traits = corpus, Traits(corpus)
        self.size = min(WINDOW, corpus.tokens // 8)
        self.reach = math.ceil(self.size * PACES[1]) + 2  # tokens that a slow window reads
        self.heard = corpus.tokens - max(2 * self.reach, int(UNHEARD_PART * corpus.tokens))
        self.voice = corpus.voice_of_tokens()

    def draw(self, batch: int) -> Window:
        device = self.corpus.device
        first = torch.randint(0, self.heard - self.reach, (batch, 1), device=device)
        pace = PACES[0] + (PACES[1] - PACES[0]) * torch.rand(batch, 1, device=device)
        return self._read(4.0 * first + 4 * torch.rand(batch, 1, device=device), pace)

    def unheard(self, batch: int) -> Window:
        device = self.corpus.device
        last = self.corpus.tokens - self.reach
        first = torch.randint(self.heard, last, (batch, 1), device=device)
        return self._read(4.0 * first, torch.ones(batch, 1, device=device))

    def _read(self, begin: Tensor, pace: Tensor) -> Window:
        """From frames `begin` [B, 1] of the corpus (100 a second) at `pace` [B, 1]."""
        corpus, begin, pace = self.corpus, begin.double(), pace.double()
        frames = torch.arange(4 * self.size, device=corpus.device)
        at = begin + pace * frames
        low = at.long()
        part = (at - low)[..., None].float()
        heard = torch.lerp(corpus["whisper"][low].float(), corpus["whisper"][low + 1].float(), part)
        row = (begin + pace * (frames[::2] + 0.5)).long() // 2
        return Window(
            heard.transpose(1, 2),
            self.traits.of_voice[self.voice[row[:, ::2] // 2]],
            corpus["phone"][row].long(),
            corpus["f0"][row] > VOICED_ABOVE,
            self.traits.octave[row],
            (corpus["mel"][row].float() - MEL_MEAN) / MEL_SPREAD,
        )


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
    corpus: Corpus, config: S3Config, out: Path, *, seconds: float, steps: int, batch: int
) -> list[dict[str, float]]:
    device = corpus.device
    model = S3Tokenizer(config).to(device)
    listener = Listener(config, len(corpus.phones)).to(device)
    average = loop.Average(model, decay=0.998)
    for block in model.encoder.blocks:
        for part in (block.attn, block.mlp):
            part.register_forward_hook(lambda module, _, y: F.dropout(y, DROPOUT, module.training))
    rate = torch.zeros((), device=device)
    parameters = [*model.parameters(), *listener.parameters()]
    optimizer = loop.adam(parameters, rate, decay=0.05)
    windows = Windows(corpus)

    def losses_of(net: S3Tokenizer, window: Window, unsteady: float) -> loop.Losses:
        lengths = torch.full((len(window.heard),), 4 * windows.size, device=device)
        with loop.half_precision(device):
            hidden, _ = net.hidden(window.heard, lengths)
        codes = quantised(net.pre_quant(hidden.float()), unsteady)
        with loop.half_precision(device):
            logits, prosody, spectrum = listener(codes, window.voice)
        logits, prosody, spectrum = logits.float(), prosody.float(), spectrum.float()
        phone, voiced = window.phone, window.voiced
        melody = (prosody[..., 1] - window.octave).abs() * voiced
        known = phone != UNKNOWN
        right = (logits.argmax(-1) == phone) & known
        return {
            "phones": F.cross_entropy(logits.flatten(0, 1), phone.flatten(), ignore_index=UNKNOWN),
            "voicing": F.binary_cross_entropy_with_logits(prosody[..., 0], voiced.float()),
            "melody": melody.sum() / voiced.sum().clamp(min=1),
            "loudness": (prosody[..., 2] - window.mel.mean(-1)).abs().mean(),
            "mel": (spectrum - window.mel).abs().mean(),
            "right": right.sum() / known.sum().clamp(min=1),
        }

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        window = windows.draw(batch)
        window.heard = disguised(window.heard)
        found = losses_of(model, window, UNSTEADY)
        loss = found["phones"] + found["melody"] + found["mel"]
        (loss + 0.3 * (found["voicing"] + found["loudness"])).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        average.follow()
        return {key: found[key].detach() for key in ("phones", "right", "melody", "mel")}

    def save() -> None:
        loop.save_state(average.copy, out / "speech_tokenizer.pt")
        with torch.no_grad():
            found = losses_of(average.copy.eval(), windows.unheard(batch), 0.0)
        print(
            {f"unheard {key}": round(float(value), 4) for key, value in found.items()}, flush=True
        )

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
        start = corpus.start.tolist()
        self.spans = [(4 * a, 4 * b) for a, b in pairwise(start)]
        self.order = sorted(range(len(self.spans)), key=lambda i: start[i + 1] - start[i])

    @torch.inference_mode()
    def codes(self, retaken: bool) -> list[Tensor]:
        """Codes of every utterance: as it is, or a little later and faster or slower."""
        whisper = self.corpus["whisper"]
        found = [torch.zeros(0)] * len(self.spans)
        for at in range(0, len(self.order), 64):
            rows = self.order[at : at + 64]
            heard = [whisper[slice(*self.spans[i])].float() for i in rows]
            if retaken:
                heard = [self._retake(row) for row in heard]
            lengths = torch.tensor([len(row) for row in heard], device=self.corpus.device)
            padded = nn.utils.rnn.pad_sequence(heard, batch_first=True).transpose(1, 2)
            codes, _ = self.model(padded, lengths)
            for i, row, frames in zip(
                rows, codes.to(torch.int16).cpu(), lengths.tolist(), strict=True
            ):
                found[i] = row[: frames // 4].clone()
        return found

    @staticmethod
    def _retake(heard: Tensor) -> Tensor:
        """[frames, bins] from another first frame, at another pace."""
        heard = heard[random.randrange(4) :]
        frames = round(len(heard) * random.uniform(*PACES)) // 4 * 4
        stretched = F.interpolate(heard.T[None], size=frames, mode="linear", align_corners=False)
        return stretched[0].T


def main() -> None:
    given = loop.arguments(__doc__, seconds=300).parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    corpus = Corpus.load(given.data, given.device)
    assert NANO.speech_tokenizer
    batch = given.batch or BATCH
    sizes = {"seconds": given.seconds, "steps": given.steps}
    if not given.resume:  # a finished tokenizer must not change: LM and flow speak its codes
        train(corpus, NANO.speech_tokenizer, given.out, batch=batch, **sizes)
    hearing = Hearing(corpus, NANO.speech_tokenizer, given.out / "speech_tokenizer.pt")
    takes = [hearing.codes(retaken=False)]
    codes = torch.cat(takes[0])
    torch.save(codes, given.out / "codes.pt")
    takes += [hearing.codes(retaken=True) for _ in range(TAKES - 1)]
    together = [(torch.cat(take), torch.tensor([len(row) for row in take])) for take in takes]
    torch.save(together, given.out / "takes.pt")
    used = codes.long().bincount(minlength=3**7).float() / len(codes)
    entropy = -(used * used.clamp(min=1e-12).log2()).sum()
    print(f"codes used: {(used > 0).sum().item()}, {entropy:.2f} bits per token")


if __name__ == "__main__":
    main()
