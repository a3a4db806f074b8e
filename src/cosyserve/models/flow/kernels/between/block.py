"""The launch. A program has 128 rows: one of its warps brings tiles, two groups of four warps each
multiply 64 rows by every tile, and one is busy with what is no product while the other multiplies.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from cosyserve.models.flow.kernels.between.layouts import (
    FEW,
    GROUP,
    IN_64_64,
    IN_128_128,
    IN_LINE,
    QKV,
    REGISTERS,
    ROWS,
    SLOTS,
    barrier,
)
from cosyserve.models.flow.kernels.between.ring import bring_all
from cosyserve.models.flow.kernels.between.rows import multiply
from cosyserve.models.flow.kernels.between.weights import Between, tiles
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch


@gluon.jit(do_not_specialize=["rows"])
def _between(
    attended,
    x,
    out_weight,
    widen_weight,
    narrow_weight,
    biases,
    qkv_weight,
    qkv_bias,
    qkv,
    rows,
    eps,
    begins: gl.constexpr,
    ends: gl.constexpr,
):
    gdc_launch_dependents()
    first_rows = gl.allocate_shared_memory(gl.bfloat16, [SLOTS, GROUP, 64], IN_64_64)
    other_rows = gl.allocate_shared_memory(gl.bfloat16, [SLOTS, GROUP, 64], IN_64_64)
    ring = gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 128, 128], IN_128_128)
    all_biases = gl.allocate_shared_memory(gl.bfloat16, [3, 512], IN_LINE)
    qkv_biases = gl.allocate_shared_memory(gl.bfloat16, [3, 512], IN_LINE)
    landed = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    freed = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(landed.index(slot), count=1)
        mbarrier.init(freed.index(slot), count=2)
    line = gl.arange(0, 512, gl.BlockedLayout([2], [32], [4], [0]))
    for part in gl.static_range(3):
        if not begins:
            all_biases.index(part).store(gl.load(biases + part * 512 + line))
        if not ends:
            qkv_biases.index(part).store(gl.load(qkv_bias + part * 512 + line))
    fence_async_shared()
    barrier()
    weights = (out_weight, widen_weight, narrow_weight, qkv_weight)
    tensors, shared = (x, qkv, rows, eps), (ring, all_biases, qkv_biases, landed, freed)
    gl.warp_specialize(
        [
            (multiply, (tensors, first_rows, shared, 0, begins, ends)),
            (multiply, (tensors, other_rows, shared, 1, begins, ends)),
            (bring_all, (attended, weights, first_rows, other_rows, shared, begins, ends)),
        ],
        [4, 1],
        [REGISTERS, FEW],
    )


def between(
    attended: Tensor | None, x: Tensor, block: Between | None, following: Between | None
) -> Tensor | None:
    """x [R, C] becomes what `block` makes of it and `attended` [R, heads * D] -> query, key and
    value [R, 3 * heads * D] of the block that follows; without either, only the other's part."""
    weights, rest = block or following, following or block
    assert weights
    assert rest
    rows = len(x)
    qkv = x.new_empty(rows, QKV.value) if following else x
    launch(
        _between,
        (triton.cdiv(rows, ROWS.value),),
        attended=tiles(x if attended is None else attended, 64, 64),
        x=x,
        out_weight=weights.out,
        widen_weight=weights.widen,
        narrow_weight=weights.narrow,
        biases=weights.biases,
        qkv_weight=rest.qkv,
        qkv_bias=rest.qkv_bias,
        qkv=qkv,
        rows=rows,
        eps=rest.eps,
        begins=block is None,
        ends=following is None,
        num_warps=4,
        launch_pdl=pdl(x),
    )
    return qkv if following else None
