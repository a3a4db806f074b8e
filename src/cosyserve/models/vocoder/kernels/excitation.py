"""The vocoder's excitation in one launch: harmonics, noise and how they are mixed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.config import VocoderConfig
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.randomness import hash_counter, hash_seed

BLOCK = 256


@triton.jit(do_not_specialize=["frames"], do_not_specialize_on_alignment=["seeds"])
def _excite(
    starts,
    slopes,
    f0,
    seeds,
    firsts,
    weight,
    bias,
    out,
    frames,
    amplitude,
    sigma,
    above,
    frame: tl.constexpr,
    tones: tl.constexpr,
    causal: tl.constexpr,
    pdl: tl.constexpr,
    block: tl.constexpr,
):
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(1)
    n = tl.program_id(0) * block + tl.arange(0, block)
    there = n < frames * frame
    voiced = tl.load(f0 + row * frames + n // frame, mask=there, other=0.0) > above
    level = tl.where(voiced, sigma, amplitude / 3)
    bits = hash_counter(hash_seed(tl.load(seeds + row)), tl.load(firsts + row) + n)
    y = tl.zeros((block,), tl.float32) + tl.load(bias)
    if causal:  # a frame holds its phase, and the noise is uniform
        at = (row * frames + n // frame) * tones
        for tone in tl.static_range(tones):
            phase = tl.load(starts + at + tone, mask=there, other=0.0)
            sine = tl.sin(6.283185307179586 * phase) * amplitude
            noise = hash_counter(bits, tone).to(tl.float32) / 4294967296.0
            y += tl.load(weight + tone) * (tl.where(voiced, sine, 0.0) + noise * level)
    else:
        moved = n + frame // 2  # phases run from the middle of one frame to the middle of the next
        part = (moved % frame + 0.5) / frame
        at = (row * (frames + 1) + moved // frame) * tones
        for pair in tl.static_range((tones + 1) // 2):
            drawn = hash_counter(bits, pair)
            radius = tl.sqrt(-2.0 * tl.log(((drawn >> 16).to(tl.float32) + 0.5) / 65536.0))
            angle = (drawn & 0xFFFF).to(tl.float32) * 9.587379924285257e-5
            for half in tl.static_range(2):
                if 2 * pair + half < tones:
                    tone = 2 * pair + half
                    start = tl.load(starts + at + tone, mask=there, other=0.0)
                    phase = start + tl.load(slopes + at + tone, mask=there, other=0.0) * part
                    sine = tl.sin(6.283185307179586 * (phase - tl.floor(phase))) * amplitude
                    noise = radius * (tl.sin(angle) if half else tl.cos(angle))
                    y += tl.load(weight + tone) * (tl.where(voiced, sine, 0.0) + noise * level)
    tanh = 1 - 2 / (tl.exp(2 * y) + 1)
    tl.store(out + row.to(tl.int64) * frames * frame + n, tanh, mask=there)


def excite(
    phases: tuple[Tensor, Tensor],
    f0: Tensor,
    seeds: Tensor,
    firsts: Tensor,
    linear: tuple[Tensor, Tensor],
    config: VocoderConfig,
    frame: int,
) -> Tensor:
    """As `HiFT.source`: phases as of `HiFT.phases` (if causal, of `HiFT.ends` twice), f0 [B, T],
    seeds of the noise [B], absolute numbers of the first samples [B], weight and bias of the mix
    -> [B, T * frame]."""
    (starts, slopes), (weight, bias) = phases, linear
    batch, frames = f0.shape
    out = torch.empty(batch, frames * frame, device=f0.device)
    launch(
        _excite,
        (triton.cdiv(frames * frame, BLOCK), batch),
        starts=starts.contiguous(),
        slopes=slopes.contiguous(),
        f0=f0,
        seeds=seeds,
        firsts=firsts,
        weight=weight,
        bias=bias,
        out=out,
        frames=frames,
        amplitude=config.sine_amplitude,
        sigma=config.noise_sigma,
        above=config.voiced_above,
        frame=frame,
        tones=config.harmonics + 1,
        causal=config.causal,
        pdl=pdl(f0),
        block=BLOCK,
        num_warps=4,
        launch_pdl=pdl(f0),
    )
    return out
