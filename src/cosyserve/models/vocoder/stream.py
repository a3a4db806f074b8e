"""Speech sample by sample from mel frames that arrive in pieces.

A chunk is vocoded in a bounded window: some frames of left context,
then the new frames. The last frames of a chunk lack their right context, so their samples are
held back and, unless the vocoder is causal, cross-faded into the next chunk's. Phase and noise
belong to the absolute sample: where a chunk begins makes no difference to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from cosyserve.models.vocoder.hift import HiFT

if TYPE_CHECKING:
    from cosyserve.models.vocoder.fused import FusedHiFT
    from cosyserve.models.vocoder.host import HostHiFT


@dataclass(frozen=True)
class VocoderState:
    """A stream between two chunks.

    mel [mel, K]: the frames that the next window begins with, and f0 of as many of them as it is
    final of; the first of them is the absolute frame `start`; `phase` [harmonics + 1] (cycles)
    stands at the frame before it (NaN at the start of speech); `emitted` of the window's frames
    were already sent; held [n]: the samples after those, to fade from; `seed` of the noise.
    """

    mel: Tensor
    f0: Tensor
    start: int
    phase: Tensor
    emitted: int
    held: Tensor
    seed: int


def begin(vocoder: HiFT, seed: int) -> VocoderState:
    config, device = vocoder.config, vocoder.conv_pre.weight.device
    empty = torch.zeros(0, device=device)
    phase = torch.full((config.harmonics + 1,), torch.nan, dtype=torch.float64, device=device)
    return VocoderState(
        mel=empty.view(config.mel, 0),
        f0=empty,
        start=0,
        phase=phase,
        emitted=0,
        held=empty,
        seed=seed,
    )


class Windows(NamedTuple):
    """Streams' frames padded to one length, and what the vocoder must know of each row."""

    mel: Tensor  # [B, mel, T]
    lengths: Tensor | None  # [B] frames; None: all T
    f0: Tensor  # [B, T], of which the first `known` [B] are final
    known: Tensor
    start: Tensor  # [B] the first frame's absolute number
    phase: Tensor  # [B, harmonics + 1], as of the state
    seed: Tensor  # [B]


class Voiced(NamedTuple):
    wave: Tensor  # [B, samples]
    f0: Tensor  # [B, T]
    turns: Tensor  # [B, T, harmonics + 1] cycles of each frame


def advance(
    vocoder: HiFT,
    states: Sequence[VocoderState],
    mels: Sequence[Tensor],
    final: Sequence[bool],
    host: HostHiFT | None = None,
) -> list[tuple[Tensor, VocoderState]]:
    """Next samples of streams, given their next frames [mel, n]: [samples] and the new state.
    `host` computes most of it, if given."""
    frames = [window(state, mel) for state, mel in zip(states, mels, strict=True)]
    sizes = [mel.shape[1] for mel in frames]
    mel = nn.utils.rnn.pad_sequence([f.T for f in frames], batch_first=True).transpose(1, 2)
    device = mel.device
    f0 = torch.zeros(len(states), mel.shape[2], device=device)
    for row, state in zip(f0, states, strict=True):
        row[: len(state.f0)] = state.f0
    same = min(sizes) == max(sizes)
    voiced = voice(
        vocoder,
        Windows(
            mel=mel,
            lengths=None if same else torch.tensor(sizes, device=device),
            f0=f0,
            known=torch.tensor([len(state.f0) for state in states], device=device),
            start=torch.tensor([state.start for state in states], device=device),
            phase=torch.stack([state.phase for state in states]),
            seed=torch.tensor([state.seed for state in states], device=device),
        ),
        host,
    )
    return emit(vocoder, states, frames, voiced, final)


def window(state: VocoderState, mel: Tensor) -> Tensor:
    """The frames that the vocoder looks at, given the next ones: [mel, n]."""
    return torch.cat((state.mel, mel.float()), dim=1)


def voice(vocoder: HiFT, windows: Windows, quick: FusedHiFT | HostHiFT | None = None) -> Voiced:
    """All samples of all windows. Shapes are static and nothing depends on data, so it can be
    captured as a CUDA graph; what is `quick` on this device computes most of it, if given."""
    mel, device = windows.mel, windows.mel.device
    net = quick or vocoder
    f0 = net.f0(mel, windows.lengths)
    frame = torch.arange(mel.shape[2], device=device)
    f0 = torch.where(frame < windows.known[:, None], windows.f0, f0)
    first = windows.start * vocoder.frame  # noise belongs to the absolute sample
    if quick:
        source = quick.source(f0, windows.seed, first, windows.phase)
    else:
        sample = first[:, None] + torch.arange(mel.shape[2] * vocoder.frame, device=device)
        noise = vocoder.noise(windows.seed[:, None], sample)
        source = vocoder.source(f0, noise, windows.phase)
    wave = net(mel, source, windows.lengths)
    return Voiced(wave, f0, vocoder.cycles_per_frame(f0))


def emit(
    vocoder: HiFT,
    states: Sequence[VocoderState],
    frames: Sequence[Tensor],
    voiced: Voiced,
    final: Sequence[bool],
) -> list[tuple[Tensor, VocoderState]]:
    """The samples of each window that are final, and the stream's next state."""
    return [
        _emit(vocoder, state, mel, f0[: mel.shape[1]], turns, wave, last)
        for state, mel, f0, turns, wave, last in zip(
            states, frames, voiced.f0, voiced.turns, voiced.wave, final, strict=False
        )
    ]


def _emit(
    vocoder: HiFT,
    state: VocoderState,
    window: Tensor,
    f0: Tensor,
    turns: Tensor,
    wave: Tensor,
    final: bool,
) -> tuple[Tensor, VocoderState]:
    frame, frames, margins = vocoder.frame, window.shape[1], vocoder.margins
    first = state.emitted  # what lies before was this window's left context
    end = frames if final else max(first, frames - margins.held)
    samples = wave[first * frame : frames * frame]
    overlap = min(len(state.held), len(samples))
    fade = (torch.arange(overlap, device=wave.device) + 0.5) / max(1, overlap)
    faded = torch.lerp(state.held[:overlap], samples[:overlap], fade)
    samples = torch.cat((faded, samples[overlap:]))
    cut = (end - first) * frame
    # A chunk too short to emit anything leaves what it has to the next one.
    held = samples[cut : cut + margins.fade * frame] if cut else state.held
    keep = max(0, end - margins.left)
    phase = state.phase
    if keep:
        origin = torch.where(phase.isnan(), 0.0, phase)
        phase = (origin + turns[:keep].sum(0)) % 1.0
    rest = VocoderState(
        mel=window[:, keep:],
        f0=f0[keep : max(keep, frames - margins.f0)],
        start=state.start + keep,
        phase=phase,
        emitted=end - keep,
        held=held,
        seed=state.seed,
    )
    return samples[:cut], rest
