"""Trains the speech tokenizer: 25 codes a second that say what is spoken and how, not by whom.

The codes must suffice to name the phoneme of every 20 ms, the pitch relative to the speaker's own,
the loudness and, for one who knows the speaker, the rough spectrum. Knows no text and no LM.
"""

from __future__ import annotations

import random
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
VOICED_ABOVE = 10.0  # Hz
TAKES = 8  # of every utterance, for the LM
PACES = (0.85, 1.18)  # of the takes
MEL_MEAN, MEL_SPREAD = -6.0, 2.5  # about zero and one for the losses


class Listener(nn.Module):
    """Hears codes and says what they mean; thrown away after training."""

    def __init__(self, config: S3Config, phones: int, voices: int, width: int = 256) -> None:
        super().__init__()
        self.phones = phones
        self.enter = nn.Conv1d(config.code_dims, width, 3, padding=1)
        self.hidden = nn.Conv1d(width, width, 3, padding=1)
        self.meaning = nn.Conv1d(width, 2 * (phones + 3), 1)  # phones, voiced, pitch, loudness
        self.voice = nn.Embedding(voices, width)
        self.spectrum_hidden = nn.Conv1d(width, width, 3, padding=1)
        self.spectrum = nn.Conv1d(width, 2 * 80, 1)

    def forward(self, codes: Tensor, voice: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """codes [B, L, dims], voice [B, L] -> [B, 2L, phones], [B, 2L, 3], [B, 2L, 80]"""
        x = F.gelu(self.hidden(F.gelu(self.enter(codes.transpose(1, 2)))))
        y = self.meaning(x).transpose(1, 2).unflatten(2, (2, -1)).flatten(1, 2)
        z = F.gelu(self.spectrum_hidden(x + self.voice(voice).transpose(1, 2)))
        mel = self.spectrum(z).transpose(1, 2).unflatten(2, (2, -1)).flatten(1, 2)
        return y[..., : self.phones], y[..., self.phones :], mel


def quantised(pre_quant: Tensor) -> Tensor:
    """Rounded values whose gradient is that of the values before rounding."""
    value = bounded(pre_quant)
    return value + (value.round() - value).detach()


def relative_pitch(corpus: Corpus) -> Tensor:
    """[frames] octaves above the voice's middle; 0 where unvoiced."""
    f0 = corpus["f0"].float()
    voice = corpus.voice_of_tokens().repeat_interleave(2)
    octave = torch.log2(f0.clamp(min=1.0))
    for index in range(len(corpus.voices)):
        mine = voice == index
        heard = mine & (f0 > VOICED_ABOVE)
        if heard.any():
            octave[mine] -= octave[heard].median()
    return torch.where(f0 > VOICED_ABOVE, octave, 0.0)


def train(
    corpus: Corpus, config: S3Config, out: Path, *, seconds: float, steps: int, batch: int
) -> list[dict[str, float]]:
    device = corpus.device
    model = S3Tokenizer(config).to(device)
    listener = Listener(config, len(corpus.phones), len(corpus.voices)).to(device)
    average = loop.Average(model, decay=0.998)
    rate = torch.zeros((), device=device)
    parameters = [*model.parameters(), *listener.parameters()]
    optimizer = loop.adam(parameters, rate)
    pitch, voices = relative_pitch(corpus), corpus.voice_of_tokens()
    window = min(WINDOW, corpus.tokens // 2)
    lengths = torch.full((batch,), 4 * window, device=device)
    tokens = torch.arange(window, device=device)
    frames = torch.arange(2 * window, device=device)

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        first = torch.randint(0, corpus.tokens - window, (batch,), device=device)
        heard = corpus.windows("whisper", first, window).float().transpose(1, 2)
        # Loudness and channel differ between recordings: codes should not follow them.
        gain = 0.1 * torch.randn(batch, 1, 1, device=device)
        tilt = 0.1 * torch.randn(batch, 1, 1, device=device)
        heard = heard + gain + tilt * torch.linspace(-1, 1, 128, device=device)[:, None]
        heard = heard + 0.03 * torch.randn_like(heard)
        phone = corpus.windows("phone", first, window).long()
        f0 = corpus.windows("f0", first, window).float()
        mel = (corpus.windows("mel", first, window).float() - MEL_MEAN) / MEL_SPREAD
        octave = pitch[first[:, None] * 2 + frames]
        voiced = f0 > VOICED_ABOVE
        with loop.half_precision(device):
            hidden, _ = model.hidden(heard, lengths)
        codes = quantised(model.pre_quant(hidden.float()))
        with loop.half_precision(device):
            logits, prosody, spectrum = listener(codes, voices[first[:, None] + tokens])
        logits, prosody, spectrum = logits.float(), prosody.float(), spectrum.float()
        spoken = F.cross_entropy(logits.flatten(0, 1), phone.flatten(), ignore_index=UNKNOWN)
        voicing = F.binary_cross_entropy_with_logits(prosody[..., 0], voiced.float())
        melody = ((prosody[..., 1] - octave).abs() * voiced).sum() / voiced.sum().clamp(min=1)
        loudness = (prosody[..., 2] - mel.mean(-1)).abs().mean()
        rough = (spectrum - mel).abs().mean()
        loss = spoken + 0.3 * voicing + 1.5 * melody + 0.3 * loudness + rough
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        average.follow()
        known = phone != UNKNOWN
        right = ((logits.argmax(-1) == phone) & known).sum() / known.sum().clamp(min=1)
        return {
            "loss": loss.detach(),
            "phones": spoken.detach(),
            "right": right,
            "melody": melody.detach(),
            "mel": rough.detach(),
        }

    def save() -> None:
        loop.save_state(average.copy, out / "speech_tokenizer.pt")

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
