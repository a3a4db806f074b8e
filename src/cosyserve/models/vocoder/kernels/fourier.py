"""Short Fourier transforms around the vocoder's convolutions, one launch each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.config import VocoderConfig
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.vocoder.hift import HiFT, fourier
from cosyserve.models.vocoder.kernels.sine import cosine_of_small, sine

FRAMES = 32  # of a program


@dataclass(frozen=True)
class Fourier:
    """A vocoder's transforms as matrices, padded with zeros to what can be multiplied."""

    forward: Tensor  # [n_fft, real and imaginary parts]
    backward: Tensor  # [pieces of a frame, 2, bins, samples of a piece]: real parts, imaginary ones
    energy: Tensor  # [pieces, samples]: squares of the window

    @classmethod
    def of(cls, vocoder: HiFT) -> Fourier:
        config, weight = vocoder.config, vocoder.conv_pre.weight
        forward, backward, window = fourier(config.n_fft, weight.device, weight.dtype)
        pieces = triton.cdiv(config.n_fft, config.hop)
        missing = pieces * config.hop - config.n_fft
        backward = F.pad(backward, (0, missing)).view(2, -1, pieces, config.hop)
        energy = F.pad(window.square(), (0, missing)).view(pieces, config.hop)
        return cls(
            _padded(forward.T, 2).contiguous(),
            _padded(backward.permute(2, 0, 1, 3), 2).contiguous(),
            _padded(energy, 1).contiguous(),
        )


def _padded(x: Tensor, sides: int) -> Tensor:
    """The last `sides` dimensions are powers of two."""
    sizes = reversed(x.shape[-sides:])
    return F.pad(x, [n for size in sizes for n in (0, _power(size) - size)])


def _power(size: int) -> int:
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit(do_not_specialize=["samples", "frames", "rows", "before"])
def _analyze(
    source,
    basis,
    lengths,
    out,
    samples,
    frames,
    rows,
    before,
    frame: tl.constexpr,
    n_fft: tl.constexpr,
    hop: tl.constexpr,
    width: tl.constexpr,
    pdl: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    row = tl.program_id(0) * bm + tl.arange(0, bm)
    n, k = tl.arange(0, bn), tl.arange(0, bk)
    sequence = tl.program_id(1).to(tl.int64)
    if pdl:
        gdc_launch_dependents()
    matrix = tl.load(basis + k[:, None] * bn + n[None, :])
    if pdl:
        gdc_wait()
    end = tl.load(lengths + sequence).to(tl.int32) * frame
    at = row - before
    inside = (at >= 0) & (at < frames) & (at <= end // hop)
    sample = tl.abs(at[:, None] * hop + k[None, :] - n_fft // 2)
    sample = tl.maximum(tl.where(sample < end, sample, 2 * end - 2 - sample), 0)  # reflected
    read = inside[:, None] & (k < n_fft)[None, :]
    x = tl.load(source + sequence * samples + sample, mask=read, other=0.0)
    y = tl.dot(x, matrix, input_precision="ieee").to(out.dtype.element_ty)
    there = out + (sequence * rows + row[:, None]) * width + n[None, :]
    tl.store(there, y, mask=(row < rows)[:, None] & (n < width)[None, :])


def analyze(
    source: Tensor,
    lengths: Tensor,
    tables: Fourier,
    config: VocoderConfig,
    frame: int,
    out: Tensor,
    before: int,
) -> None:
    """As `HiFT.spectrum`: [B, N] -> `out` [B, rows, columns], from row `before` on; what else there
    is of it is zero."""
    batch, samples = source.shape
    rows, width = out.shape[1:]
    launch(
        _analyze,
        (triton.cdiv(rows, FRAMES), batch),
        source=source.contiguous(),
        basis=tables.forward,
        lengths=lengths,
        out=out,
        samples=samples,
        frames=samples // config.hop + 1,
        rows=rows,
        before=before,
        frame=frame,
        n_fft=config.n_fft,
        hop=config.hop,
        width=width,
        pdl=pdl(source),
        bm=FRAMES,
        bn=tables.forward.shape[1],
        bk=tables.forward.shape[0],
        num_warps=4,
        launch_pdl=pdl(source),
    )


@triton.jit(do_not_specialize=["frames", "rate", "lead"])
def _synthesize(
    x,
    backward,
    energy,
    lengths,
    out,
    frames,
    rate,
    lead,
    limit,
    bins: tl.constexpr,
    half: tl.constexpr,
    hop: tl.constexpr,
    pieces: tl.constexpr,
    pdl: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    row = tl.program_id(0) * bm + tl.arange(0, bm)  # of `hop` samples
    n, k = tl.arange(0, bn), tl.arange(0, bk)
    sequence = tl.program_id(1).to(tl.int64)
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    end = tl.minimum(tl.load(lengths + sequence).to(tl.int32) * rate + lead, frames)
    total = tl.zeros((bm, bn), tl.float32)
    power = tl.zeros((bm, bn), tl.float32)
    for piece in tl.static_range(pieces):  # of the frame that began so many rows before
        at = row - piece
        present = (at >= 0) & (at < end)
        there = x + (sequence * frames + at[:, None]) * (2 * bins) + k[None, :]
        read = present[:, None] & (k < bins)[None, :]
        loud = tl.exp(tl.load(there, mask=read, other=float("-inf")))
        magnitude = tl.minimum(loud, 100.0, propagate_nan=tl.PropagateNan.ALL)
        angle = sine(tl.load(there + bins, mask=read, other=0.0))
        part = backward + piece * (2 * bk * bn) + k[:, None] * bn + n[None, :]
        real, imaginary = tl.load(part), tl.load(part + bk * bn)
        total = tl.dot(magnitude * cosine_of_small(angle), real, total, input_precision="ieee")
        total = tl.dot(magnitude * sine(angle), imaginary, total, input_precision="ieee")
        power += tl.where(present[:, None], tl.load(energy + piece * bn + n)[None, :], 0.0)
    y = total / tl.maximum(power, 1e-8)
    y = tl.clamp(y, -limit, limit, propagate_nan=tl.PropagateNan.ALL)  # somebody looks for it
    sample = row[:, None] * hop + n[None, :] - half
    written = (n < hop)[None, :] & (sample >= 0) & (sample < (frames - 1) * hop)
    tl.store(out + sequence * (frames - 1) * hop + sample, y, mask=written)


def synthesize(
    x: Tensor, lengths: Tensor, rate: int, lead: int, tables: Fourier, config: VocoderConfig
) -> Tensor:
    """As `HiFT.samples`, of rows [B, frames, n_fft + 2] that end at lengths * rate + lead."""
    batch, frames, _ = x.shape
    pieces, _, bk, bn = tables.backward.shape
    out = torch.empty(batch, (frames - 1) * config.hop, device=x.device)
    launch(
        _synthesize,
        (triton.cdiv(frames + pieces - 1, FRAMES), batch),
        x=x,
        backward=tables.backward,
        energy=tables.energy,
        lengths=lengths,
        out=out,
        frames=frames,
        rate=rate,
        lead=lead,
        limit=config.limit,
        bins=config.n_fft // 2 + 1,
        half=config.n_fft // 2,
        hop=config.hop,
        pieces=pieces,
        pdl=pdl(x),
        bm=FRAMES,
        bn=bn,
        bk=bk,
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return out
