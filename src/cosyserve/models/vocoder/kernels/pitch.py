"""What stands between mel frames and the excitation, one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.config import VocoderConfig
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch

FRAMES = 16  # of a program


@triton.jit(do_not_specialize=["frames"])
def _mel_rows(
    mel,
    lengths,
    out,
    frames,
    channels: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
):
    t, n = tl.program_id(0) * bm + tl.arange(0, bm), tl.arange(0, bn)
    sequence = tl.program_id(1).to(tl.int64)
    there = (t < frames)[:, None] & (n < channels)[None, :]
    read = there & (t < tl.load(lengths + sequence))[:, None]
    x = tl.load(mel + (sequence * channels + n[None, :]) * frames + t[:, None], mask=read, other=0)
    at = out + (sequence * frames + t[:, None]) * channels + n[None, :]
    tl.store(at, x.to(out.dtype.element_ty), mask=there)


def mel_rows(mel: Tensor, lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, mel, T] -> rows [B, T, mel], zero behind the ends."""
    batch, channels, frames = mel.shape
    out = torch.empty(batch, frames, channels, device=mel.device, dtype=dtype)
    launch(
        _mel_rows,
        (triton.cdiv(frames, FRAMES), batch),
        mel=mel.contiguous(),
        lengths=lengths,
        out=out,
        frames=frames,
        channels=channels,
        bm=FRAMES,
        bn=triton.next_power_of_2(channels),
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize=["frames"])
def _pitch(
    x,
    weight,
    bias,
    lengths,
    out,
    frames,
    size: tl.constexpr,
    pdl: tl.constexpr,
    bm: tl.constexpr,
    bk: tl.constexpr,
):
    t, k = tl.program_id(0) * bm + tl.arange(0, bm), tl.arange(0, bk)
    sequence = tl.program_id(1).to(tl.int64)
    wide = k < size
    if pdl:
        gdc_launch_dependents()
    w, b = tl.load(weight + k, mask=wide, other=0.0), tl.load(bias)
    if pdl:
        gdc_wait()
    read = (t < frames)[:, None] & wide[None, :]
    rows = tl.load(x + (sequence * frames + t[:, None]) * size + k[None, :], mask=read, other=0.0)
    f0 = tl.abs(tl.sum(rows * w[None, :], 1) + b)
    f0 = tl.where(t < tl.load(lengths + sequence), f0, 0.0)
    tl.store(out + sequence * frames + t, f0, mask=t < frames)


def pitch(x: Tensor, linear: tuple[Tensor, Tensor], lengths: Tensor) -> Tensor:
    """The size of a sum of each row [B, T, C] -> [B, T], zero behind the ends."""
    batch, frames, size = x.shape
    out = torch.empty(batch, frames, device=x.device)
    launch(
        _pitch,
        (triton.cdiv(frames, FRAMES // 4), batch),
        x=x,
        weight=linear[0],
        bias=linear[1],
        lengths=lengths,
        out=out,
        frames=frames,
        size=size,
        pdl=pdl(x),
        bm=FRAMES // 4,
        bk=triton.next_power_of_2(size),
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out


@triton.jit(do_not_specialize=["frames"])
def _phases(
    f0,
    before,
    starts,
    slopes,
    frames,
    sample_rate: tl.constexpr,
    frame: tl.constexpr,
    tones: tl.constexpr,
    causal: tl.constexpr,
    pdl: tl.constexpr,
    block: tl.constexpr,
):
    tone, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t = tl.arange(0, block)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    there = t < frames
    turns = tl.load(f0 + row * frames + t, mask=there, other=0.0).to(tl.float64)
    turns = turns * (tone + 1) / sample_rate
    turns = (turns - tl.floor(turns)) * frame
    known = tl.load(before + row * tones + tone)
    begins = known != known
    middle = tl.where(begins, 0.0, known) + tl.cumsum(turns)
    middle = (middle - tl.floor(middle)).to(tl.float32)
    if causal:
        tl.store(starts + (row * frames + t) * tones + tone, middle, mask=there)
    else:
        lines = row * (frames + 1) * tones + tone
        tl.store(starts + lines + (t + 1) * tones, middle, mask=there)
        first = tl.where(begins, turns, known)
        first = (first - tl.floor(first)).to(tl.float32)
        tl.store(starts + lines + t, first, mask=t == 0)
        slope = tl.where(t == 0, tl.where(begins, 0.0, turns), turns).to(tl.float32)
        tl.store(slopes + lines + t * tones, slope, mask=t <= frames)


def phases(f0: Tensor, before: Tensor, config: VocoderConfig, frame: int) -> tuple[Tensor, Tensor]:
    """As `HiFT.phases`; if causal, `HiFT.ends` twice."""
    batch, frames = f0.shape
    tones = config.harmonics + 1
    lines = frames if config.causal else frames + 1
    starts = torch.empty(batch, lines, tones, device=f0.device)
    slopes = starts if config.causal else torch.empty_like(starts)
    launch(
        _phases,
        (tones, batch),
        f0=f0,
        before=before,
        starts=starts,
        slopes=slopes,
        frames=frames,
        sample_rate=config.sample_rate,
        frame=frame,
        tones=tones,
        causal=config.causal,
        pdl=pdl(f0),
        block=triton.next_power_of_2(lines),
        num_warps=4,
        launch_pdl=pdl(f0),
    )
    return starts, slopes
