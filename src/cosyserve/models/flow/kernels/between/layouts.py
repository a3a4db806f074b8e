"""Sizes, and where what the matrix units multiply lies in registers and in shared memory."""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl

ROWS = gl.constexpr(128)  # of a program
GROUP = gl.constexpr(64)  # rows of a group of warps
# Of CosyVoice2's U-Net: channels, and those of an attention, of a hidden layer, and of query, key
# and value.
WIDTH, INNER, HIDDEN, QKV = (gl.constexpr(size) for size in (256, 512, 1024, 1536))
SLOTS = gl.constexpr(4)  # of the ring
TILE = gl.constexpr(32 << 10)  # bytes of a slot
REGISTERS, FEW = gl.constexpr(240), gl.constexpr(24)  # of a thread that multiplies, and that brings
# Tiles: of the layer behind an attention, of each 64 channels of the hidden layer two, of each 128
# of query, key and value two.
OUT_TILES = gl.constexpr(INNER.value // 64)
HIDDEN_TURNS = gl.constexpr(HIDDEN.value // 64)
QKV_TURNS = gl.constexpr(QKV.value // 128)
BEFORE_QKV = gl.constexpr(OUT_TILES.value + 2 * HIDDEN_TURNS.value)

# How the matrix units hold results of 128 and of 64 columns, and take what they multiply.
RESULT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]))
NARROW_RESULT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
FACTOR = gl.constexpr(gl.DotOperandLayout(0, RESULT.value, 2))
# Memory's columns in the same registers: four threads have 64 bytes of a row.
LINES = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0], [0, 32], [0, 64]],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 128],
    )
)


def shared(rows: int, columns: int) -> gl.NVMMASharedLayout:
    """How the matrix units want a tile in shared memory."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)


IN_64_64, IN_64_128, IN_64_256, IN_128_128, IN_256_64 = (
    gl.constexpr(shared(*shape))
    for shape in ((64, 64), (64, 128), (64, 256), (128, 128), (256, 64))
)
IN_LINE = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # its name in Triton 3.6


def order(columns: int) -> Tensor:
    """Which of memory's columns each of the matrix units' is."""
    at = torch.arange(columns)
    return at // 32 * 32 + at % 8 // 2 * 8 + at % 32 // 8 * 2 + at % 2
