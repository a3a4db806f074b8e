"""What a group of four warps computes: 64 rows, by each tile of weights as it comes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from cosyserve.models.flow.kernels.between.layouts import (
    BEFORE_QKV,
    FACTOR,
    GROUP,
    HIDDEN_TURNS,
    IN_64_128,
    IN_64_256,
    IN_256_64,
    IN_LINE,
    LINES,
    NARROW_RESULT,
    OUT_TILES,
    QKV,
    QKV_TURNS,
    RESULT,
    ROWS,
    SLOTS,
    WIDTH,
    barrier,
)
from cosyserve.models.flow.kernels.between.ring import free, take


@gluon.jit
def _times(x, w, acc, clears: gl.constexpr = False):
    """acc + x w^T, under way."""
    return warpgroup_mma(x, w.permute((1, 0)), acc, use_acc=not clears, is_async=True)


@gluon.jit
def _gelu(y):
    """Near enough by tanh."""
    inner = y * (0.7978845608028654 + 0.035677408136300125 * y * y)
    tanh = gl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=gl.float32, is_pure=True, pack=1
    )
    half = 0.5 * y
    return half + half * tanh


@gluon.jit
def _normalized(lo, hi, eps):
    """LayerNorm of rows whose columns are in two halves."""
    mean = (gl.sum(lo, 1) + gl.sum(hi, 1)) / WIDTH
    square = (gl.sum(lo * lo, 1) + gl.sum(hi * hi, 1)) / WIDTH
    scaling = gl.rsqrt(gl.maximum(square - mean * mean, 0.0) + eps)
    less = (mean * scaling)[:, None]
    lo = lo * scaling[:, None] - less
    hi = hi * scaling[:, None] - less
    return lo.to(gl.bfloat16), hi.to(gl.bfloat16)


@gluon.jit
def _to_lines(x):
    x = x.to(gl.bfloat16).reshape([64, 4, 4, 4, 2]).permute([0, 1, 3, 2, 4])
    return gl.convert_layout(x.reshape([64, 128]), LINES)


@gluon.jit
def _from_lines(x):
    x = x.reshape([64, 4, 4, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([64, 128])
    return gl.convert_layout(x, RESULT).to(gl.float32)


@gluon.jit
def _bias(line, layout: gl.constexpr):
    return line.load(gl.SliceLayout(0, layout)).to(gl.float32)[None, :]


@gluon.jit
def _widened(x, tile, wide, landed):
    """64 channels of the hidden layer, under way."""
    w = wide.index(take(tile, landed))
    nothing = gl.zeros([GROUP, 64], gl.float32, NARROW_RESULT)
    y = _times(x.index(0), w.slice(0, 128, 1), nothing, True)
    return _times(x.index(1), w.slice(128, 128, 1), y)


@gluon.jit
def _narrowed(hidden, bias, lo, hi, tile, high, landed):
    """lo and hi, with what 64 channels of the hidden layer add to them, under way."""
    y = gl.convert_layout(_gelu(hidden + _bias(bias, NARROW_RESULT)).to(gl.bfloat16), FACTOR)
    w = high.index(take(tile, landed))
    return _times(y, w.slice(0, 128), lo), _times(y, w.slice(128, 128), hi)


@gluon.jit
def _projected(lo, hi, tile, ring, landed):
    """128 channels of query, key and value, under way."""
    nothing = gl.zeros([GROUP, 128], gl.float32, RESULT)
    y = _times(lo, ring.index(take(tile, landed)), nothing, True)
    return _times(hi, ring.index(take(tile + 1, landed)), y)


@gluon.jit
def multiply(tensors, own, shared, group: gl.constexpr, begins: gl.constexpr, ends: gl.constexpr):
    """What a group of warps does with its 64 rows; `own` has them where they are multiplied."""
    x, qkv, rows, eps = tensors
    ring, all_biases, qkv_biases, landed, freed = shared
    wide = ring._reinterpret(gl.bfloat16, [SLOTS, 64, WIDTH], IN_64_256)
    high = ring._reinterpret(gl.bfloat16, [SLOTS, WIDTH, 64], IN_256_64)
    halves = own._reinterpret(gl.bfloat16, [2, GROUP, 128], IN_64_128)
    by_64 = all_biases._reinterpret(gl.bfloat16, [24, 64], IN_LINE)
    by_128 = all_biases._reinterpret(gl.bfloat16, [12, 128], IN_LINE)
    qkv_by_128 = qkv_biases._reinterpret(gl.bfloat16, [QKV_TURNS, 128], IN_LINE)
    m = gl.program_id(0) * ROWS + group * GROUP + gl.arange(0, GROUP, gl.SliceLayout(1, LINES))
    n = gl.arange(0, 128, gl.SliceLayout(0, LINES))[None, :]
    here = (m < rows)[:, None]
    at = x + m.to(gl.int64)[:, None] * WIDTH + n
    gdc_wait()
    x_lo = gl.load(at, mask=here, other=0.0)
    x_hi = gl.load(at + 128, mask=here, other=0.0)
    if begins:
        lo, hi = _from_lines(x_lo), _from_lines(x_hi)
    else:
        lo = gl.zeros([GROUP, 128], gl.float32, RESULT) + _bias(by_128.index(0), RESULT)
        hi = gl.zeros([GROUP, 128], gl.float32, RESULT) + _bias(by_128.index(1), RESULT)
        for tile in range(OUT_TILES):
            slot = take(tile, landed)
            w = high.index(slot)
            lo = _times(own.index(slot), w.slice(0, 128), lo)
            hi = _times(own.index(slot), w.slice(128, 128), hi)
            lo, hi = warpgroup_mma_wait(0, [lo, hi])
            free(tile, freed)
        lo += _from_lines(x_lo)
        hi += _from_lines(x_hi)
        y_lo, y_hi = _normalized(lo, hi, eps)
        halves.index(0).store(y_lo)
        halves.index(1).store(y_hi)
        fence_async_shared()
        barrier()
        lo += _bias(by_128.index(10), RESULT)
        hi += _bias(by_128.index(11), RESULT)
        hidden = warpgroup_mma_wait(0, [_widened(halves, OUT_TILES, wide, landed)])
        free(OUT_TILES, freed)
        for turn in range(HIDDEN_TURNS - 1):
            tile = OUT_TILES + 2 * turn + 1
            after = _widened(halves, tile + 1, wide, landed)
            lo, hi = _narrowed(hidden, by_64.index(4 + turn), lo, hi, tile, high, landed)
            hidden, lo, hi = warpgroup_mma_wait(0, [after, lo, hi])
            free(tile, freed)
            free(tile + 1, freed)
        bias = by_64.index(3 + HIDDEN_TURNS)
        lo, hi = _narrowed(hidden, bias, lo, hi, BEFORE_QKV - 1, high, landed)
        lo, hi = warpgroup_mma_wait(0, [lo, hi])
        free(BEFORE_QKV - 1, freed)
        gl.store(at, _to_lines(lo), mask=here)
        gl.store(at + 128, _to_lines(hi), mask=here)
    if not ends:
        y_lo, y_hi = _normalized(lo, hi, eps)
        y_lo, y_hi = gl.convert_layout(y_lo, FACTOR), gl.convert_layout(y_hi, FACTOR)
        first: gl.constexpr = 0 if begins else BEFORE_QKV
        done = warpgroup_mma_wait(0, [_projected(y_lo, y_hi, first, ring, landed)])
        free(first, freed)
        free(first + 1, freed)
        at = qkv + m.to(gl.int64)[:, None] * QKV + n
        for turn in range(QKV_TURNS - 1):
            tile = first + 2 * turn + 2
            after = _projected(y_lo, y_hi, tile, ring, landed)
            y = _to_lines(done + _bias(qkv_by_128.index(turn), RESULT))
            gl.store(at + turn * 128, y, mask=here)
            done = warpgroup_mma_wait(0, [after])
            free(tile, freed)
            free(tile + 1, freed)
        y = _to_lines(done + _bias(qkv_by_128.index(QKV_TURNS - 1), RESULT))
        gl.store(at + (QKV_TURNS - 1) * 128, y, mask=here)
