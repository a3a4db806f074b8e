"""A ring of tiles in shared memory, into which one warp brings weights and attended rows. A tile is
taken when it has landed; its slot is free again when both groups of warps have used it."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.extra.cuda import gdc_wait

from cosyserve.models.flow.kernels.between.layouts import (
    BEFORE_QKV,
    GROUP,
    HIDDEN_TURNS,
    IN_64_256,
    IN_256_64,
    OUT_TILES,
    QKV_TURNS,
    ROWS,
    SLOTS,
    TILE,
    WIDTH,
)


@gluon.jit
def _claim(tile, freed, landed, size: gl.constexpr):
    """The slot of a tile of so many bytes, once it is free."""
    slot = tile % SLOTS
    mbarrier.wait(freed.index(slot), (tile // SLOTS + 1) & 1)
    mbarrier.expect(landed.index(slot), size)
    return slot


@gluon.jit
def _bring(weight, n, k, tile, ring, landed, freed):
    slot = _claim(tile, freed, landed, TILE)
    tma.async_copy_global_to_shared(weight, [n, k], landed.index(slot), ring.index(slot))


@gluon.jit
def take(tile, landed):
    """The slot of a tile, once it is there."""
    slot = tile % SLOTS
    mbarrier.wait(landed.index(slot), (tile // SLOTS) & 1)
    return slot


@gluon.jit
def free(tile, freed):
    mbarrier.arrive(freed.index(tile % SLOTS))


@gluon.jit
def bring_all(
    attended, weights, first_rows, other_rows, shared, begins: gl.constexpr, ends: gl.constexpr
):
    """What the warp does that multiplies nothing."""
    out_weight, widen_weight, narrow_weight, qkv_weight = weights
    ring, _, _, landed, freed = shared
    row = gl.program_id(0) * ROWS
    wide = ring._reinterpret(gl.bfloat16, [SLOTS, 64, WIDTH], IN_64_256)
    high = ring._reinterpret(gl.bfloat16, [SLOTS, WIDTH, 64], IN_256_64)
    if not begins:
        for tile in range(OUT_TILES):
            at = tile * 64
            slot = _claim(tile, freed, landed, TILE + ROWS * 64 * 2)
            bar = landed.index(slot)
            tma.async_copy_global_to_shared(out_weight, [0, at], bar, high.index(slot))
            if tile == 0:
                gdc_wait()
            tma.async_copy_global_to_shared(attended, [row, at], bar, first_rows.index(slot))
            tma.async_copy_global_to_shared(
                attended, [row + GROUP, at], bar, other_rows.index(slot)
            )
        for turn in range(HIDDEN_TURNS):
            tile = OUT_TILES + 2 * turn
            _bring(widen_weight, turn * 64, 0, tile, wide, landed, freed)
            _bring(narrow_weight, 0, turn * 64, tile + 1, high, landed, freed)
    if not ends:
        for turn in range(QKV_TURNS):
            for half in gl.static_range(2):
                tile = (0 if begins else BEFORE_QKV) + 2 * turn + half
                _bring(qkv_weight, turn * 128, half * 128, tile, ring, landed, freed)
