"""A causal convolution of packed rows over groups of channels, and Mish behind it. The frames
before a row's first one may lie in a memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import Tile, mish, tile_for
from cosyserve.models.flow.kernels.past import frames_at, keep_last, past_arguments
from cosyserve.models.flow.packing import LayerPast, RowSpans
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import load_tile, load_vector, times

TILES = Tile(32, 0, 4, 4), Tile(128, 0, 4, 3)  # a program has whole groups


@triton.jit(do_not_specialize=["length"])
def _grouped_conv(
    x,
    weight,
    bias,
    residual,
    row_starts,
    memory,
    step,
    lines,
    known,
    wanted,
    out,
    length,
    all_lines,
    channels: tl.constexpr,
    places: tl.constexpr,
    size: tl.constexpr,
    taps: tl.constexpr,
    adds: tl.constexpr,
    ieee: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    pdl: tl.constexpr,
):
    t = tl.program_id(0) * bm + tl.arange(0, bm)
    group = tl.program_id(1)
    n = tl.arange(0, bn)
    if pdl:
        gdc_launch_dependents()
    b = load_vector(bias + group * size, n, size)
    # Older than the last launch that did not begin early.
    starts = tl.load(row_starts + t, mask=t < length, other=length)
    if pdl:
        gdc_wait()
    begin = group * size
    matrices = weight + group * taps * size * size
    acc = tl.zeros((bm, bn), tl.float32) + b
    past, line, there = memory, starts, starts
    if places:
        past = memory + tl.load(step).to(tl.int64) * all_lines * places * channels
        line = tl.load(lines + t, mask=t < length, other=0)
        there = tl.load(known + t, mask=t < length, other=0)
        if group == 0:
            keep_last(x, past, t, starts, line, wanted, length, places, channels)
    for tap in range(taps):
        at = t + (tap - (taps - 1))
        frames, inside = frames_at(x, at, starts, length, past, line, there, places, channels)
        taken = inside[:, None] & (n < size)[None, :]
        x_tile = tl.load(frames[:, None] + begin + n[None, :], mask=taken, other=0.0)
        w = load_tile(matrices + tap * size * size, n, n, size, size, size)
        acc = times(x_tile, w, acc, ieee)
    y = mish(acc)
    at = begin + t.to(tl.int64)[:, None] * channels + n[None, :]
    written = (t < length)[:, None] & (n < size)[None, :]
    if adds:
        y += tl.load(residual + at, mask=written, other=0.0).to(tl.float32)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=written)


def grouped_conv(
    x: Tensor,
    spans: RowSpans,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    past: LayerPast | None = None,
    *,
    ieee: bool,
) -> Tensor:
    """residual + mish(convolution): x, residual [T, C] of packed rows, weight [groups, taps,
    C / groups, C / groups] -> [T, C]; the past's memory [steps, lines, taps - 1, C] has frames of
    x. On a GPU a launch of torch's must lie between the writing of spans and this."""
    length, channels = x.shape
    groups, taps, size, _ = weight.shape
    out = torch.empty_like(x)
    bm, _, warps, stages = tile_for(length, TILES)
    launch(
        _grouped_conv,
        (triton.cdiv(length, bm), groups),
        x=x,
        weight=weight,
        bias=bias,
        residual=x if residual is None else residual,
        row_starts=spans.starts,
        **past_arguments(past, spans.starts),
        out=out,
        length=length,
        channels=channels,
        size=size,
        taps=taps,
        adds=residual is not None,
        ieee=ieee,
        bm=bm,
        bn=max(16, triton.next_power_of_2(size)),
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out
