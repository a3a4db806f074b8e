"""Trains the vocoder: mel frames become samples.

First spectra alone, then also discriminators that look at periods and at spectrograms. A vocoder to
go on from comes without them: they learn alone first. Knows no flow.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from cosyserve.models.config import VocoderConfig
from cosyserve.models.vocoder import hift
from cosyserve.models.vocoder.hift import HiFT
from training import loop
from training.data import Corpus
from training.discriminators import Discriminators, SpectralLoss
from training.sizes import NANO

WINDOW = 14  # tokens: 0.56 s
BATCH = 16
PEAK_RATE = 4e-4
GUESSED_PART = 0.5  # of the rows sound at the pitch that the vocoder hears, as in use
SPECTRA_PART = 0.12  # of the time without discriminators
JUDGES_PART = 0.02  # of the time for discriminators alone, before a trained vocoder goes on

# Its constants come from the host, which a captured step may not wait for.
hift._fourier = functools.cache(hift._fourier)


def convolutions(model: nn.Module) -> list[nn.Module]:
    """Those whose weights train better as direction and length."""
    return [m for m in model.modules() if isinstance(m, nn.Conv1d | nn.ConvTranspose1d)]


def folded(model: HiFT) -> HiFT:
    """The same vocoder with plain weights, as the package loads them."""
    plain = HiFT(model.config)
    state = {key: value for key, value in model.state_dict().items() if key in plain.state_dict()}
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
            state[f"{name}.weight"] = module.weight
    plain.load_state_dict(state)
    return plain


class Speech:
    """Random pieces of the corpus: mel, samples and pitch."""

    def __init__(self, corpus: Corpus, batch: int) -> None:
        self.corpus, self.batch = corpus, batch
        self.window = min(WINDOW, corpus.tokens // 2)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """mel [B, 80, 2T], wave [B, 960 T], f0 [B, 2T]"""
        corpus, device = self.corpus, self.corpus.device
        first = torch.randint(0, corpus.tokens - self.window, (self.batch,), device=device)
        mel = corpus.windows("mel", first, self.window).float().transpose(1, 2)
        wave = corpus.windows("wave", first, self.window).float() / 32767
        return mel, wave, corpus.windows("f0", first, self.window).float()


def train(
    speech: Speech,
    config: VocoderConfig,
    out: Path,
    *,
    seconds: float,
    steps: int,
    resume: bool = False,
    fused: bool = False,
) -> list[dict[str, float]]:
    device = speech.corpus.device
    model, judges = HiFT(config), Discriminators()
    if resume:
        loop.load_state(model, out / "vocoder.pt")
    else:
        nn.init.constant_(model.f0_predictor.classifier.bias, 120.0)  # type: ignore[arg-type]
        with torch.no_grad():
            model.conv_post.weight.mul_(0.1)
            assert model.conv_post.bias is not None
            model.conv_post.bias[: config.n_fft // 2 + 1] = -4.0  # begin quietly
    for module in convolutions(model):
        weight_norm(module)
    model, judges, spectral = model.to(device), judges.to(device), SpectralLoss().to(device)
    average = loop.Average(model)
    if fused:
        loop.fuse([model])
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(model.parameters(), rate, betas=(0.8, 0.99))
    judging = loop.adam(judges.parameters(), rate, betas=(0.8, 0.99))

    def speak() -> tuple[Tensor, Tensor, Tensor, loop.Losses]:
        mel, wave, f0 = speech.draw()
        mel = mel + 0.05 * torch.randn_like(mel)  # the flow's frames are not exact either
        heard = model.f0(mel)
        pitch = ((heard - f0).abs() / 100).mean()
        guessed = torch.rand(len(f0), 1, device=device) < GUESSED_PART
        source = torch.where(guessed, heard.detach(), f0)
        noise = torch.randn(*wave.shape, config.harmonics + 1, device=device)
        made = model(mel, model.source(source, noise))
        spectra, mels = spectral(made, wave)
        near = spectra + 2 * mels + pitch
        told = {"loss": near.detach(), "mel": mels.detach(), "pitch": pitch.detach()}
        return made, wave, near, told

    def update(loss: Tensor) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        average.follow()

    def spectra_step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        _, _, loss, told = speak()
        update(loss)
        return told

    def judge(wave: Tensor, made: Tensor) -> tuple[list[list[Tensor]], Tensor]:
        judging.zero_grad(set_to_none=True)
        judges.requires_grad_(True)
        with loop.half_precision(device):
            heard: list[list[Tensor]] = judges(torch.cat((wave, made)))
        verdict = made.new_zeros(())
        for maps in heard:
            real, fake = maps[-1].float().split(len(wave))
            verdict = verdict + (1 - real).square().mean() + fake.square().mean()
        verdict.backward()
        judging.step()
        judges.requires_grad_(False)
        return heard, verdict.detach()

    def judges_step() -> loop.Losses:
        made, wave, _, told = speak()  # with gradients, for one compiled graph serves both steps
        return told | {"judges": judge(wave, made.detach())[1]}

    def adversarial_step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        made, wave, near, told = speak()
        heard, verdict = judge(wave, made.detach())
        with loop.half_precision(device):
            answers = judges(made)
        fooled, alike = made.new_zeros(()), made.new_zeros(())
        for maps, own in zip(heard, answers, strict=True):
            fooled = fooled + (1 - own[-1].float()).square().mean()
            for a, b in zip(maps[:-1], own[:-1], strict=True):
                alike = alike + (a[: len(wave)].detach().float() - b.float()).abs().mean()
        update(fooled + 2 * alike + 7 * near)
        return told | {"judges": verdict, "fooled": fooled.detach(), "alike": alike.detach()}

    def save() -> None:
        loop.save_state(folded(average.copy), out / "vocoder.pt")

    history: list[dict[str, float]] = []
    first = ("vocoder_spectra", SPECTRA_PART, spectra_step)
    if resume:
        first = ("vocoder_judges", JUDGES_PART, judges_step)
    for name, share, step in (first, ("vocoder", 1 - first[1], adversarial_step)):
        count = max(3, int(steps * share))
        runner = loop.Loop(name, out, rate, PEAK_RATE, seconds * share, count, save)
        history += runner.run(step)
    return history


def main() -> None:
    given = loop.arguments(__doc__, seconds=1100).parse_args()
    loop.begin(given.seed)
    corpus = Corpus.load(given.data, given.device)
    assert NANO.vocoder
    speech = Speech(corpus, given.batch or BATCH)
    sizes = {"seconds": given.seconds, "steps": given.steps}
    train(speech, NANO.vocoder, given.out, resume=given.resume, fused=given.compile, **sizes)


if __name__ == "__main__":
    main()
