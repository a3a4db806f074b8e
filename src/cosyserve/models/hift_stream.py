"""Speech sample by sample from mel frames that arrive in pieces.

Knows no flow and no session. A chunk is vocoded in a bounded window: some frames of left context,
then the new frames. The last frames of a chunk lack their right context, so their samples are
held back and cross-faded into the next chunk's. Phase and noise belong to the absolute sample:
where a chunk begins makes no difference to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosyserve.models.hift import HiFT
from cosyserve.models.randomness import normal

LEFT_FRAMES = 20  # context in front of the first emitted sample
HELD_FRAMES = 8  # not emitted until more is known: 160 ms
FADE_FRAMES = 2  # of the held ones: the first, which have the most right context
F0_FRAMES = 5  # f0 of the last frames of a chunk is not final: the predictor sees 5 to the right


@dataclass(frozen=True)
class VocoderState:
    """A stream between two chunks.

    mel [mel, K] and f0 [K]: the frames that the next window begins with; the first of them is the
    absolute frame `start`; `phase` [harmonics + 1] (cycles) stands in the middle of the frame
    before it (NaN at the start of speech); `emitted` of the window's frames were already sent;
    held [n]: the samples after those, to fade from; `seed` of the noise.
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
    return VocoderState(empty.view(config.mel, 0), empty, 0, phase, 0, empty, seed)


def advance(
    vocoder: HiFT, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
) -> list[tuple[Tensor, VocoderState]]:
    """Next samples of streams, given their next frames [mel, n]: [samples] and the new state."""
    windows = [torch.cat((s.mel, m.float()), dim=1) for s, m in zip(states, mels, strict=True)]
    sizes = [window.shape[1] for window in windows]
    mel = nn.utils.rnn.pad_sequence([w.T for w in windows], batch_first=True).transpose(1, 2)
    same = min(sizes) == max(sizes)
    lengths = None if same else torch.tensor(sizes, device=mel.device)
    f0 = vocoder.f0(mel, lengths)
    for row, state in zip(f0, states, strict=True):
        known = max(0, len(state.f0) - F0_FRAMES)
        row[:known] = state.f0[:known]
    noise = _noise(vocoder, states, mel.shape[2])
    before = torch.stack([state.phase for state in states])
    waves = vocoder(mel, vocoder.source(f0, noise, before), lengths)
    turns = vocoder.cycles_per_frame(f0)
    return [
        _emit(vocoder, state, window, pitch[:size], turn, wave, last)
        for state, window, pitch, turn, wave, size, last in zip(
            states, windows, f0, turns, waves, sizes, final, strict=True
        )
    ]


def _noise(vocoder: HiFT, states: Sequence[VocoderState], frames: int) -> Tensor:
    """[B, samples, harmonics + 1], by absolute sample."""
    device = vocoder.conv_pre.weight.device
    start = torch.tensor([s.start * vocoder.frame for s in states], device=device)
    seed = torch.tensor([s.seed for s in states], device=device)
    index = start[:, None] + torch.arange(frames * vocoder.frame, device=device)
    return normal(seed[:, None], index, vocoder.config.harmonics + 1)


def _emit(
    vocoder: HiFT,
    state: VocoderState,
    window: Tensor,
    f0: Tensor,
    turns: Tensor,
    wave: Tensor,
    final: bool,
) -> tuple[Tensor, VocoderState]:
    frame, frames = vocoder.frame, window.shape[1]
    first = state.emitted  # what lies before was this window's left context
    end = frames if final else max(first, frames - HELD_FRAMES)
    samples = wave[first * frame : frames * frame]
    overlap = min(len(state.held), len(samples))
    fade = (torch.arange(overlap, device=wave.device) + 0.5) / max(1, overlap)
    faded = torch.lerp(state.held[:overlap], samples[:overlap], fade)
    samples = torch.cat((faded, samples[overlap:]))
    cut = (end - first) * frame
    # A chunk too short to emit anything leaves what it has to the next one.
    held = samples[cut : cut + FADE_FRAMES * frame] if cut else state.held
    keep = max(0, end - LEFT_FRAMES)
    phase = state.phase
    if keep:
        origin = torch.where(phase.isnan(), 0.0, phase)
        phase = (origin + turns[:keep].sum(0)) % 1.0
    start = state.start + keep
    rest = VocoderState(window[:, keep:], f0[keep:], start, phase, end - keep, held, state.seed)
    return samples[:cut], rest
