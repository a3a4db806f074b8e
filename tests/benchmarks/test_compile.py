"""All that the engine launches compiles for GPUs that are not here, and fits them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosyserve.models import kernels

triton = pytest.importorskip("triton", reason="pip install triton")

ROOT = Path(__file__).parents[2]
KERNELS = {
    *("causal_conv._causal_conv", "chunk._attend", "convolution._convolve"),
    *("decode_attention._attend", "draw._draw", "elementwise._add_norm", "elementwise._embed"),
    *("elementwise._gate", "euler._count", "euler._euler", "excitation._excite"),
    *("fourier._analyze", "fourier._synthesize", "grouped_conv._grouped_conv"),
    *("head_norm._norm_heads", "pitch._mel_rows", "pitch._phases", "pitch._pitch"),
    *("linear._linear_add", "linear._norm_mish"),
    *("linear_batch._batch_linear", "linear_few._merge_project", "linear_few._project"),
    *("linear_few._rms_norm_linear", "modulation._norm_modulate", "norm_linear._normalize"),
    *("norm_linear._layer_norm_linear", "prefill_attention._attend", "prefill_attention._rotate"),
    *("prefix._attend", "relative._attend", "rotation._rotate_first_head"),
    "row._attend",
}
GLUON = {"block._between"}  # Hopper's alone
FEW_BYTES = 8  # that ptxas may put elsewhere though registers are left
LOCAL_ARRAYS = {"excitation._excite"}  # of the library's sine: a stack, though nothing spills


def compiled(cache: Path, *options: str) -> list[list[str]]:
    """Words of the lines that the tool prints, in a process where nothing is interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "benchmarks.gpu.compile", *options]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line.split() for line in done.stdout.splitlines()]


def test_an_l4_runs_every_kernel_of_every_model(tmp_path: Path) -> None:
    lines = compiled(tmp_path, "--target", "89")
    assert {words[1] for words in lines} == KERNELS
    spilling = [words for words in lines if words[2] == "spills,"]
    assert {words[1] for words in spilling if int(words[3]) > FEW_BYTES} <= LOCAL_ARRAYS


def test_hopper_runs_those_of_cosyvoice2(tmp_path: Path) -> None:
    known = triton.__version__.startswith(kernels.GLUON)
    options = "--target", "90", "--family", "cosyvoice2", "--part", "lm", "flow"
    lines = compiled(tmp_path, *options)
    assert {words[1] for words in lines} - KERNELS == (GLUON if known else set())
    assert all(words[0] == "sm_90" for words in lines)
