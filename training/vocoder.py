"""Trains the vocoder: mel frames become samples.

First spectra alone, then also discriminators that look at periods and at spectrograms. A vocoder to
go on from mostly comes without them: they learn alone first. Where the corpus has been said by a
flow (`training.flow_mels`), half of the rows are made of its frames: they need not become just
these samples, but sound like speech. Knows no flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from cosyserve.models.config import VocoderConfig
from cosyserve.models.vocoder.hift import HiFT
from training import loop
from training.data import Corpus
from training.discriminators import Discriminators, SpectralLoss
from training.sizes import NANO

WINDOW = 14  # tokens: 0.56 s
BATCH = 16
PEAK_RATE, RESUMED_RATE = 4e-4, 3e-4
GUESSED_PART = 0.5  # of the rows sound at the pitch that the vocoder hears, as in use
SPECTRA_PART = 0.12  # of the time without discriminators
JUDGES_STEPS = 600  # of new discriminators alone, before a trained vocoder goes on
# How much a row has to come near its samples: one of the flow's frames has another spectrum, and at
# the pitch that is heard in them another pitch, too.
FLOW_WEIGHT, IN_USE_WEIGHT = 0.5, 0.1


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
        self.flow_rows = batch // 2 if (corpus.folder / "flow_mel.npy").exists() else 0
        if self.flow_rows:
            self.close = corpus["close"].unfold(0, self.window, 1).all(1).nonzero()[:, 0]

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """mel [B, 80, 2T], wave [B, 960 T], f0 [B, 2T]; the last `flow_rows` have the flow's mel"""
        corpus, device = self.corpus, self.corpus.device
        first = torch.randint(0, corpus.tokens - self.window, (self.batch,), device=device)
        if self.flow_rows:
            pick = torch.randint(0, len(self.close), (self.flow_rows,), device=device)
            first = torch.cat((first[: -self.flow_rows], self.close[pick]))
        mel = corpus.windows("mel", first, self.window)
        if self.flow_rows:
            made = corpus.windows("flow_mel", first[-self.flow_rows :], self.window)
            mel = torch.cat((mel[: -self.flow_rows], made))
        wave = corpus.windows("wave", first, self.window).float() / 32767
        f0 = corpus.windows("f0", first, self.window).float()
        return mel.float().transpose(1, 2), wave, f0


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
    known_judges = resume and (out / "discriminators.pt").exists()
    if known_judges:
        loop.load_state(judges, out / "discriminators.pt")
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

    of_flow = torch.arange(speech.batch, device=device) >= speech.batch - speech.flow_rows
    at_true_pitch = torch.where(of_flow, FLOW_WEIGHT, 1.0)
    at_heard_pitch = torch.where(of_flow, IN_USE_WEIGHT, 1.0)

    def speak() -> tuple[Tensor, Tensor, Tensor, Tensor, loop.Losses]:
        mel, wave, f0 = speech.draw()
        mel = mel + 0.05 * torch.randn_like(mel)  # the flow's frames are not exact either
        heard = model.f0(mel)
        pitch = (((heard - f0).abs() / 100).mean(1) * ~of_flow).sum() / (~of_flow).sum()
        guessed = torch.rand(len(f0), device=device) < GUESSED_PART
        source = torch.where(guessed[:, None], heard.detach(), f0)
        weight = torch.where(guessed, at_heard_pitch, at_true_pitch)
        noise = torch.randn(*wave.shape, config.harmonics + 1, device=device)
        made = model(mel, model.source(source, noise))
        spectra, mels = spectral(made, wave, weight)
        near = spectra + 2 * mels + pitch
        told = {"loss": near.detach(), "mel": mels.detach(), "pitch": pitch.detach()}
        return made, wave, weight, near, told

    def update(loss: Tensor) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        average.follow()

    def spectra_step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        _, _, _, loss, told = speak()
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
        made, wave, _, _, told = speak()  # with gradients, for one compiled graph serves both steps
        return told | {"judges": judge(wave, made.detach())[1]}

    def adversarial_step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        made, wave, weight, near, told = speak()
        heard, verdict = judge(wave, made.detach())
        with loop.half_precision(device):
            answers = judges(made)
        fooled, alike = made.new_zeros(()), made.new_zeros(())
        for maps, own in zip(heard, answers, strict=True):
            fooled = fooled + (1 - own[-1].float()).square().mean()
            for a, b in zip(maps[:-1], own[:-1], strict=True):
                far = (a[: len(wave)].detach().float() - b.float()).abs()
                alike = alike + (weight * far.flatten(1).mean(1)).mean()
        update(fooled + 2 * alike + 7 * near)
        return told | {"judges": verdict, "fooled": fooled.detach(), "alike": alike.detach()}

    def save() -> None:
        loop.save_state(folded(average.copy), out / "vocoder.pt")
        loop.save_state(judges, out / "discriminators.pt")

    def stage(name: str, seconds: float, steps: int, step: Callable[[], loop.Losses]) -> None:
        runner = loop.Loop(name, out, rate, peak, seconds, steps, save)
        history.extend(runner.run(step))

    begun, history = time.monotonic(), list[dict[str, float]]()
    peak = RESUMED_RATE if resume else PEAK_RATE
    if not resume:
        part = max(3, int(steps * SPECTRA_PART))
        stage("vocoder_spectra", seconds * SPECTRA_PART, part, spectra_step)
    elif not known_judges:
        stage("vocoder_judges", seconds, min(steps, JUDGES_STEPS), judges_step)
    stage("vocoder", seconds - (time.monotonic() - begun), steps, adversarial_step)
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
