"""Convolutions over rows of channels, several of one shape in one launch.

A convolution is a list of taps: a matrix each, for rows that stand a fixed number apart. So are the
phases of a transposed one, and so is a sum of convolutions. Rows are activated when they are
written, with zeros behind a sequence's end: no activation is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.vocoder.kernels.sine import square_of_sine


class ConvolutionTile(NamedTuple):
    """Rows, columns and depth of the products of a program, its warps and stages."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


WIDE = ConvolutionTile(64, 128, 64, 4, 4)
NARROW = ConvolutionTile(128, 64, 64, 8, 3)
SMALL = ConvolutionTile(64, 64, 64, 4, 4)
LARGE_PROGRAMS = 264  # from so many programs on, tiles are large


@triton.jit
def snake(x, alpha):
    """x + sin²(αx) / α, of columns with an α [1, N] each."""
    # A quotient for a column, not for each number of it.
    return x + square_of_sine(x, alpha * 0.3183098861837907) * (1.0 / (alpha + 1e-9))


@triton.jit
def _stored(v, dtype: tl.constexpr):
    if dtype == tl.float16:  # whose largest number is 65504
        v = tl.clamp(v, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
    return v.to(dtype)


@triton.jit(
    do_not_specialize=[
        *("parts", "positions", "stride", "x_line", "length", "rows", "line"),
        *("sums", "residual_line", "keeps", "copies", "rate", "lead"),
    ]
)
def _convolve(
    x,
    weight,
    plan,
    bias,
    residual,
    alpha,
    lengths,
    out,
    active,
    parts,
    positions,
    stride,
    x_line,
    length,
    rows,
    line,
    sums,
    residual_line,
    keeps,
    copies,
    rate,
    lead,
    slope,
    scale,
    size: tl.constexpr,
    outputs: tl.constexpr,
    spread: tl.constexpr,
    act: tl.constexpr,
    ieee: tl.constexpr,
    pdl: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
):
    blocks: tl.constexpr = (outputs + bn - 1) // bn
    chunks: tl.constexpr = (size + bk - 1) // bk
    precision: tl.constexpr = "ieee" if ieee else "tf32"
    group = tl.program_id(0) // blocks
    n = tl.program_id(0) % blocks * bn + tl.arange(0, bn)
    begin = tl.program_id(1) * bm
    t = begin + tl.arange(0, bm)
    sequence = tl.program_id(2).to(tl.int64)
    wide = n < outputs
    if pdl:
        gdc_launch_dependents()
        gdc_wait()
    phase, output = 0, group
    if spread > 1:
        phase, output = lead + group, 0
    end = (tl.load(lengths + sequence) * rate + lead).to(tl.int32)
    needed = begin * spread + phase < end  # or else all of it is behind the end
    acc = tl.zeros((bm, bn), tl.float32)
    for part in range(parts):
        convolution = group * parts + part
        first, taps = tl.load(plan + 4 * convolution), tl.load(plan + 4 * convolution + 1)
        apart, shift = tl.load(plan + 4 * convolution + 2), tl.load(plan + 4 * convolution + 3)
        start = x + (sequence * stride + convolution * x_line) * size
        for turn in range(tl.where(needed, taps * chunks, 0)):
            tap = turn // chunks
            k = turn % chunks * bk + tl.arange(0, bk)
            at = t + (shift + tap * apart)
            inside = ((at >= 0) & (at < positions))[:, None]
            held = wide[:, None]
            if size % bk:
                inside &= (k < size)[None, :]
                held &= (k < size)[None, :]
            x_tile = tl.load(start + at[:, None] * size + k[None, :], mask=inside, other=0.0)
            matrix = weight + (first + tap) * (outputs * size)
            w = tl.load(matrix + n[:, None] * size + k[None, :], mask=held, other=0.0)
            acc = tl.dot(x_tile, tl.trans(w), acc, input_precision=precision)
    y = acc + tl.load(bias + group * outputs + n, mask=wide, other=0.0)[None, :]
    position = t * spread + phase
    at = position[:, None] * outputs + n[None, :]
    written = (t < length)[:, None] & wide[None, :]
    for term in range(sums):
        there = residual + (sequence * rows + (group * sums + term) * residual_line) * outputs
        y += tl.load(there + at, mask=written, other=0.0)
    y = tl.where((position < end)[:, None], y * scale, 0.0)
    if keeps != 0:
        tl.store(out + (sequence * rows + output * line) * outputs + at, y, mask=written)
    if act != "":
        for copy in range(copies):
            if act == "snake":
                a = tl.load(alpha + (group * copies + copy) * outputs + n, mask=wide, other=1.0)
                v = snake(y, a[None, :])
            elif act == "leaky":
                v = tl.where(y > 0, y, slope * y)
            else:
                v = tl.where(y > 0, y, tl.exp(y) - 1)
            there = active + (sequence * rows + (output * copies + copy) * line) * outputs
            tl.store(there + at, _stored(v, active.dtype.element_ty), mask=written)


@dataclass(frozen=True)
class Taps:
    """Convolutions launched together: one per group, or the phases of a transposed one, or several
    whose sum is one group's."""

    weight: Tensor  # [taps of all, N, C]
    plan: Tensor  # [convolutions, 4] int32: first tap, taps, rows between them, rows to the first
    bias: Tensor  # [groups, N]
    phases: int = 1


@dataclass(frozen=True)
class Ends:
    """Where sequences end: at lengths * rate + lead. Phases are written `lead` rows late."""

    lengths: Tensor  # [B]
    rate: int
    lead: int = 0


@dataclass(frozen=True)
class Activation:
    kind: Literal["snake", "leaky", "elu"]
    alpha: Tensor | None = None  # [copies of all groups, N] of snake
    slope: float = 0.0  # of leaky


def convolve(
    x: Tensor,
    taps: Taps,
    ends: Ends,
    out: Tensor | None,
    active: Tensor | None = None,
    activation: Activation | None = None,
    *,
    residual: Tensor | None = None,
    scale: float = 1.0,
    ieee: bool,
) -> None:
    """Writes scale * (convolution + bias + residual) to `out` and activated to `active`, both with
    zeros behind the ends.

    x [convolutions or 1, B, T, C]; out [groups, B, rows, N] float32; active [groups * copies, B,
    rows, N]; residual [groups or 1, B, rows, N], or of a single group any number, to be added up.
    """
    written = active if out is None else out
    assert written is not None
    groups, outputs = taps.bias.shape
    _, batch, rows, _ = written.shape
    size, line = x.shape[3], batch * rows
    length = rows // taps.phases
    bm, bn, bk, warps, stages = _tile(length, outputs, batch * groups)
    bn = min(bn, max(16, triton.next_power_of_2(outputs)))
    bk = min(bk, max(16, triton.next_power_of_2(size)))
    terms = 0 if residual is None else len(residual)
    alpha = activation.alpha if activation else None
    launch(
        _convolve,
        (groups * triton.cdiv(outputs, bn), triton.cdiv(length, bm), batch),
        x=x,
        weight=taps.weight,
        plan=taps.plan,
        bias=taps.bias,
        residual=written if residual is None else residual,
        alpha=taps.bias if alpha is None else alpha,
        lengths=ends.lengths,
        out=written if out is None else out,
        active=written if active is None else active,
        parts=len(taps.plan) // groups,
        positions=x.shape[2],
        stride=x.stride(1) // size,
        x_line=x.stride(0) // size if len(x) > 1 else 0,
        length=length,
        rows=rows,
        line=line,
        sums=terms if groups == 1 else min(1, terms),
        residual_line=line if terms > 1 else 0,
        keeps=int(out is not None),
        copies=0 if active is None else len(active) // (1 if taps.phases > 1 else groups),
        rate=ends.rate,
        lead=ends.lead,
        slope=activation.slope if activation else 0.0,
        scale=scale,
        size=size,
        outputs=outputs,
        spread=taps.phases,
        act=activation.kind if activation else "",
        ieee=ieee,
        pdl=pdl(x),
        bm=bm,
        bn=bn,
        bk=bk,
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )


def _tile(length: int, outputs: int, sequences: int) -> ConvolutionTile:
    """The first of which there are enough."""
    for tile in (WIDE, NARROW) if outputs >= WIDE.columns else (NARROW,):
        programs = triton.cdiv(length, tile.rows) * triton.cdiv(outputs, tile.columns) * sequences
        if programs >= LARGE_PROGRAMS:
            return tile
    return SMALL
