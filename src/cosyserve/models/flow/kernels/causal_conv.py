"""A causal convolution of kernel 3 over packed rows; frames are lines of channels. The two frames
before a row's first one may lie in a memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosyserve.models.flow.kernels.linear import Tile, Tiles, is_large, tile_for
from cosyserve.models.flow.kernels.past import frames_at, keep_last, past_arguments
from cosyserve.models.flow.packing import LayerPast, RowSpans
from cosyserve.models.kernels import Budget, budget, pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.tiles import load_tile, load_vector, times

TILES: dict[Budget, Tiles] = {
    Budget.HOPPER: (Tile(16, 64, 4, 3), Tile(64, 128, 4, 4), Tile(128, 256, 8, 3)),
    Budget.SMALL: (Tile(16, 64, 4, 3), Tile(64, 64, 4, 4)),
}
LONE = {Budget.HOPPER: Tile(16, 64, 8, 3)}
DEPTH, LARGE_DEPTH = {Budget.HOPPER: 256, Budget.SMALL: 128}, 64  # channels per turn of the loop


@triton.jit(do_not_specialize=["length"])
def _causal_conv(
    x,
    weight,
    bias,
    row_starts,
    memory,
    step,
    lines,
    known,
    wanted,
    out,
    length,
    all_lines,
    size: tl.constexpr,
    outputs: tl.constexpr,
    places: tl.constexpr,
    ieee: tl.constexpr,
    bm: tl.constexpr,
    bn: tl.constexpr,
    bk: tl.constexpr,
    pdl: tl.constexpr,
):
    t = tl.program_id(0) * bm + tl.arange(0, bm)
    n = tl.program_id(1) * bn + tl.arange(0, bn)
    k = tl.arange(0, bk)
    later = weight + outputs * size
    last = later + outputs * size
    if pdl:
        gdc_launch_dependents()
    if size <= bk:
        w0 = load_tile(weight, n, k, outputs, size, size)
        w1 = load_tile(later, n, k, outputs, size, size)
        w2 = load_tile(last, n, k, outputs, size, size)
    b = load_vector(bias, n, outputs)
    # Older than the last launch that did not begin early.
    starts = tl.load(row_starts + t, mask=t < length, other=length)
    past, line, there = memory, starts, starts
    if places:
        past = memory + tl.load(step).to(tl.int64) * all_lines * places * size
        line = tl.load(lines + t, mask=t < length, other=0)
        there = tl.load(known + t, mask=t < length, other=0)
    if pdl:
        gdc_wait()
    acc = tl.zeros((bm, bn), tl.float32) + b
    if size <= bk:
        x0 = _frames(x, t - 2, k, starts, length, past, line, there, places, size)
        x1 = _frames(x, t - 1, k, starts, length, past, line, there, places, size)
        x2 = _frames(x, t, k, starts, length, past, line, there, 0, size)
        # Two sums side by side: a product that waits for another takes its time.
        more = times(x1, w1, tl.zeros((bm, bn), tl.float32), ieee)
        acc = times(x0, w0, acc, ieee) + times(x2, w2, more, ieee)
    else:
        turns: tl.constexpr = (size + bk - 1) // bk
        for turn in range(3 * turns):
            tap = turn // turns
            at = (turn % turns) * bk + k
            tapped = t + (tap - 2)
            x_tile = _frames(x, tapped, at, starts, length, past, line, there, places, size)
            w = load_tile(weight + tap * outputs * size, n, at, outputs, size, size)
            acc = times(x_tile, w, acc, ieee)
    if places and tl.program_id(1) == 0:
        keep_last(x, past, t, starts, line, wanted, length, places, size)
    target = out + t.to(tl.int64)[:, None] * outputs + n[None, :]
    written = (t < length)[:, None] & (n < outputs)[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=written)


@triton.jit
def _frames(x, t, k, starts, length, past, line, known, places: tl.constexpr, size: tl.constexpr):
    """Channels k of frames t; zero where there are none."""
    at, inside = frames_at(x, t, starts, length, past, line, known, places, size)
    return tl.load(at[:, None] + k[None, :], mask=inside[:, None] & (k < size)[None, :], other=0.0)


def causal_conv(
    x: Tensor,
    spans: RowSpans,
    weight: Tensor,
    bias: Tensor,
    past: LayerPast | None = None,
    *,
    ieee: bool,
) -> Tensor:
    """x [T, C] of packed rows, weight [3, N, C] -> [T, N]; the past's memory [steps, lines, 2, C]
    has frames of x. On a GPU a launch of torch's must lie between the writing of spans and this."""
    length, size = x.shape
    outputs = weight.shape[1]
    out = torch.empty(length, outputs, device=x.device, dtype=x.dtype)
    cut = budget(x.device)
    bm, bn, warps, stages = tile_for(length, TILES[cut], LONE.get(cut))
    depth = max(16, triton.next_power_of_2(size))
    launch(
        _causal_conv,
        (triton.cdiv(length, bm), triton.cdiv(outputs, bn)),
        x=x,
        weight=weight,
        bias=bias,
        row_starts=spans.starts,
        **past_arguments(past, spans.starts),
        out=out,
        length=length,
        size=size,
        outputs=outputs,
        ieee=ieee,
        bm=bm,
        bn=bn,
        bk=min(depth, LARGE_DEPTH if is_large(length) else DEPTH[cut]),
        pdl=pdl(x),
        num_warps=warps,
        num_stages=stages,
        launch_pdl=pdl(x),
    )
    return out
