"""Compiles every kernel for compute capability 9.0, at full size, and prints their names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from cosyserve.models.flow.kernels import (
    causal_conv,
    chunk_attention,
    euler,
    grouped_conv,
    linear,
    modulation,
    norm_linear,
    rotation,
)
from cosyserve.models.lm.kernels import (
    decode_attention,
    draw,
    elementwise,
    linear_batch,
    linear_few,
    prefill_attention,
)
from cosyserve.models.vocoder.kernels import convolution, excitation

HOPPER = GPUTarget("cuda", 90, 32)
TILE: dict[str, Any] = {"pdl": True, "rows": 2, "bn": 8, "bk": 1024}


def compiles(
    kernel: Any, types: Sequence[str], warps: int = 4, stages: int = 3, **constants: Any
) -> None:
    """`types` of all arguments but the constants, in order."""
    rest = iter(types)
    signature, given = {}, {}
    for index, name in enumerate(kernel.arg_names):
        signature[name] = "constexpr" if name in constants else next(rest)
        if name in constants:
            given[(index,)] = constants[name]
    source = ASTSource(kernel, signature=signature, constexprs=given)
    compiled = triton.compile(
        source, target=HOPPER, options={"num_warps": warps, "num_stages": stages}
    )
    assert compiled.asm["cubin"]
    sys.stdout.write(f"{kernel.__name__}\n")


half, whole, number = "*bf16", "*fp32", "i32"
rest = number, number, "fp32"
compiles(
    linear_few._rms_norm_linear,
    (whole, half, half, half, half, whole, *rest),
    **TILE,
    gated=False,
    quantized=False,
    biased=True,
)
compiles(
    linear_few._rms_norm_linear,
    (whole, half, "*i8", whole, half, half, *rest),
    **TILE,
    gated=True,
    quantized=True,
    biased=False,
)
compiles(
    linear_few._project,
    (half, half, half, whole, whole, number, number),
    8,
    **TILE | {"bn": 2, "bk": 8192},
    quantized=False,
)
compiles(
    linear_few._merge_project,
    (whole, whole, half, half, whole, whole, number, number),
    **TILE,
    quantized=False,
    splits=8,
    width=64,
)
batch: dict[str, Any] = {"ieee": False, "pdl": True, "line": 64, "gated": False, "biased": False}
batch |= {"adds": False, "parts": 0, "bm": linear_batch.ROWS, "bp": 1}
plain, gated = linear_batch.PLAIN, linear_batch.GATED
for shape, kind in (
    (plain, {"size": 896, "piece": 896, "lines": 16, "biased": True}),
    (plain, {"size": 896, "piece": 896, "lines": 16, "adds": True}),
    (gated, {"size": 896, "piece": 896, "lines": 16, "gated": True, "parts": 28, "bp": 32}),
    (plain, {"size": 4864, "piece": 1280, "lines": 32}),
):
    compiles(
        linear_batch._batch_linear,
        (half, half, half, whole, half, whole, half, *rest),
        shape.warps,
        shape.stages,
        **batch | kind | {"bn": shape.outputs, "bk": shape.depth},
    )
sizes = {
    "width": 64,
    "group": 7,
    "ieee": False,
    "pdl": True,
    "early": True,
    "bg": 16,
    "bk": decode_attention.KEYS,
    "bd": 64,
}
compiles(
    decode_attention._attend,
    (whole, whole, "*i64", half, half, whole, whole, *[number] * 7, "fp32"),
    **sizes,
    splits=8,
)
place = *[number] * 4, number
compiles(
    prefill_attention._rotate,
    (half, whole, "*i64", "*i64", half, half, *place),
    width=64,
    pdl=True,
    bq=32,
    bh=16,
    bd=32,
)
compiles(
    prefill_attention._attend,
    (half, "*i64", "*i64", half, half, half, number, *place, "fp32"),
    width=64,
    ieee=False,
    pdl=True,
    bq=32,
    bk=64,
    bd=64,
)
compiles(elementwise._embed, ("*i64", half, whole, number, number), pdl=True, block=1024)
compiles(
    elementwise._add_norm,
    (whole, whole, half, half, number, number, "fp32"),
    parts=4,
    pdl=True,
    block=1024,
)
compiles(elementwise._gate, (half, half, number), pdl=True, block=1024)
compiles(
    draw._draw,
    (whole, "*i64", "*fp64", "*fp64", "*i64", "*i64", *[number] * 3),
    16,
    elsewhere=True,
    window=64,
    max_top_k=64,
    pdl=True,
    block=8192,
)

# Those of flow and vocoder, for few rows and for many.
common: dict[str, Any] = {"ieee": False, "pdl": True}
for bm, bn, once in ((32, 128, True), (128, 64, False), (128, 32, False)):
    compiles(
        norm_linear._layer_norm_linear,
        (half, half, whole, whole, half, *[number] * 3, "fp32"),
        8,
        **common | {"size": 256, "act": "gelu", "once": once, "bm": bm, "bn": bn, "bk": 256},
    )
compiles(norm_linear._normalize, (half, half, number, "fp32"), size=256, bm=8, bk=256, pdl=True)
for bm, bn, bk, halves in ((16, 64, 512, True), (64, 128, 64, False)):
    tile = common | {"bm": bm, "bn": bn, "bk": bk}
    compiles(
        linear._linear_add,
        (*[half] * 5, number, number),
        4 + 4 * halves,
        **tile | {"size": 1024, "adds": True, "halves": halves},
    )
    compiles(
        causal_conv._causal_conv,
        (*[half] * 3, "*i32", half, number),
        **tile | {"size": 256, "outputs": 256, "bk": min(bk, 256)},
    )
    compiles(
        chunk_attention._attend,
        (half, "*i32", "*i32", "*i64", half, number, "fp32"),
        **common | {"heads": 8, "width": 64, "clear": not halves, "bq": 64, "bk": bn, "bd": 64},
    )
for bm, _, warps, stages in grouped_conv.TILES:
    compiles(
        grouped_conv._grouped_conv,
        (*[half] * 4, "*i32", half, number),
        warps,
        stages,
        **common | {"channels": 1024, "size": 64, "taps": 31, "adds": True, "bm": bm, "bn": 64},
    )
compiles(
    modulation._norm_modulate,
    (half, half, *[whole] * 3, "*i64", half, number, "fp32"),
    size=1024,
    adds=True,
    bm=modulation.ROWS,
    bk=1024,
    pdl=True,
)
compiles(
    rotation._rotate_first_head,
    (half, whole, whole, "*i32", number),
    inner=1024,
    pairs=32,
    bt=rotation.FRAMES,
    bp=32,
    pdl=True,
)
compiles(
    euler._euler,
    (half, whole, half, whole, "*i64", number, "fp32"),
    pdl=True,
    mel=80,
    columns=320,
    guided=True,
    bt=8,
    bc=128,
)
compiles(euler._count, ("*i64", number), pdl=True)
compiles(
    linear._norm_mish,
    (*[half] * 4, "*i64", half, half, *[number] * 3, "fp32"),
    pdl=True,
    size=256,
    timed=True,
    adds=True,
    bm=8,
    bk=256,
)
voiced: dict[str, Any] = {"size": 128, "outputs": 128, "spread": 1, "act": "snake"}
compiles(
    convolution._convolve,
    (*["*fp16"] * 2, "*i32", *[whole] * 3, "*i64", whole, "*fp16", *[number] * 13, "fp32", "fp32"),
    8,
    **common | voiced | {"bm": 128, "bn": 64, "bk": 64},
)
for causal in (False, True):
    compiles(
        excitation._excite,
        (*[whole] * 3, *["*i64"] * 2, *[whole] * 3, number, *["fp32"] * 3),
        frame=480,
        tones=9,
        causal=causal,
        pdl=True,
        block=256,
    )
