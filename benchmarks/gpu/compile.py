"""Every kernel that the engine launches, compiled for GPUs that are not here.

    python -m benchmarks.gpu.compile [--target SM ...] [--family FAMILY ...] [--dtype DTYPE]
                                     [--part PART ...] [--kernels auto|small]

All shapes that the engine would capture on such a GPU are traced, with networks of full size but
without memory, and what they would launch is compiled: with the same tiles, types, warps and
stages. A line per kernel and target: bytes of shared memory, registers and bytes of stack (where
registers spill to) of the variant that takes most of each. The exit status is 1 if one does not
compile, or does not fit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported: an interpreter can't compile

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from benchmarks.gpu.bench import FAMILIES, FULL
from cosyserve.choices import KernelChoice
from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.gpu_memory import MAX_FRAMES
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.lm import LMGraphs
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.engine.compute.graphs.vocoder import VocoderGraphs
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.profile import THROUGHPUT
from cosyserve.models import fused, kernels
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    ModelConfig,
    RotaryDiTConfig,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.flow.flow import Flow
from cosyserve.models.kernels import GPU, launch
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT

MEMORY = 1 << 40  # bytes that the engine finds free
# By compute capability: bytes of shared memory that a program may have.
SHARED = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 120: 99 << 10}
TARGETS = (80, 86, 89, 90, 120)
PARTS = ("lm", "flow", "vocoder")
PROCESSORS = 100  # of a GPU that is not here: no kernel depends on it
META = torch.device("meta")


@dataclass
class Variant:
    """A kernel as it is launched with some tiles and types."""

    kernel: str
    constants: dict[str, Any]
    shared: int = 0
    registers: int = 0
    stack: int = 0
    error: str = ""

    def fits(self, capability: int) -> bool:
        return not self.error and self.shared <= SHARED[capability]


class Target:
    """Stands for Triton's driver: a GPU that only is compiled for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # kernels are kept by device

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass
class Compiler(Executor):
    """Compiles what Triton asks for, on all cores, and notes what comes of it."""

    pool: Executor
    variants: list[Variant] = field(default_factory=list)

    def asked(self, *, fn: Any, compile: dict[str, Any], **_: Any) -> None:
        """Triton's hook: what it will submit next."""
        names = fn.jit_function.arg_names
        constants = {names[path[0]]: value for path, value in compile["constants"].items()}
        options = {name: compile[name] for name in ("num_warps", "num_stages")}
        self._next = Variant(f"{fn.module.split('.')[-1]}.{fn.name}", constants | options)

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        self.variants.append(self._next)
        return self.pool.submit(partial(self._compiled, work, self._next))

    def _compiled(self, work: Callable[[], Any], variant: Variant) -> Any:
        variant.error = ""  # of a first try
        try:
            kernel = work()
        except Exception as error:
            variant.error = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            raise
        variant.shared = kernel.metadata.shared
        variant.registers, variant.stack = used(kernel.asm["cubin"])
        return kernel


def used(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        dump = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", told)[0]
    return int(registers), int(stack)


@contextmanager
def compiling(capability: int, compiler: Compiler) -> Iterator[None]:
    """Inside, devices without memory are such a GPU, and a launch only compiles."""
    major, minor = divmod(capability, 10)
    found = GPU((major, minor), SHARED[capability], PROCESSORS)
    there = kernels.gpu
    kernels.gpu = lambda _: found  # type: ignore[assignment]
    driver.set_active(Target(capability))
    triton.knobs.runtime.jit_cache_hook = compiler.asked
    token = launch._compiling.set(True)
    try:
        with triton.AsyncCompileMode(compiler, ignore_errors=True):
            yield
    finally:
        launch._compiling.reset(token)
        triton.knobs.runtime.jit_cache_hook = None
        kernels.gpu = there


@torch.inference_mode()
def trace(family: str, parts: Sequence[str], dtype: torch.dtype) -> None:
    """Launches all that the engine captures of a model of full width; a layer of each kind will do.
    LM and flow are of this type, the vocoder is of the one that it has."""
    lm_config, flow_config, vocoder_config = narrow(FULL[family])
    queue = DeviceQueue(META, static=True)
    with META:
        lm = SpeechLM(lm_config).eval().requires_grad_(False).to(dtype)
        flow = Flow(flow_config).eval().requires_grad_(False).to(dtype)
        vocoder = HiFT(vocoder_config).eval().requires_grad_(False)
    if "lm" in parts:
        for eight_bits in (False, True):
            lm.eight_bits = eight_bits
            LMGraphs(lm, THROUGHPUT.slots, MAX_POSITIONS, queue).warm_up()
    if "flow" in parts:
        gpu_memory.free_bytes = lambda device: MEMORY
        packed = PackedFlow.of(flow, queue, THROUGHPUT.rows[-1])
        assert packed
        packed.warm_up()
    if "vocoder" in parts:
        VocoderGraphs(vocoder, queue, THROUGHPUT.rows, MAX_FRAMES).warm_up()


def narrow(config: ModelConfig) -> tuple[LMConfig, FlowConfig, VocoderConfig]:
    """The same widths with a layer of each kind."""
    assert config.lm
    assert config.flow
    assert config.vocoder
    encoder, estimator = config.flow.encoder, config.flow.estimator
    if isinstance(encoder, EncoderConfig):
        encoder = replace(encoder, blocks=1, up_blocks=1)
    if isinstance(estimator, UNetConfig):
        estimator = replace(estimator, blocks=2, mid=1)  # there is something between two
    elif isinstance(estimator, DiTConfig | RotaryDiTConfig):
        estimator = replace(estimator, depth=2)  # the second has something to add
    flow = replace(config.flow, encoder=encoder, estimator=estimator)
    return replace(config.lm, layers=1), flow, config.vocoder


def compile_all(
    capability: int,
    families: Sequence[str],
    parts: Sequence[str],
    dtype: torch.dtype,
    choice: KernelChoice,
) -> list[Variant]:
    """All variants of all kernels, for one target."""
    fused.DTYPE = dtype
    kernels.use_kernels(choice)
    with launch.CompilerPool(os.cpu_count()) as pool:
        compiler = Compiler(pool)
        with compiling(capability, compiler):
            for family in families:
                trace(family, parts, dtype)
    return compiler.variants


def table(capability: int, variants: Sequence[Variant]) -> Iterator[str]:
    """A line per kernel, then one for each variant that can't be launched, or spills."""
    by_kernel: dict[str, list[Variant]] = {}
    for variant in variants:
        by_kernel.setdefault(variant.kernel, []).append(variant)
    for name, found in sorted(by_kernel.items()):
        shared, registers, stack = (
            max(getattr(one, most) for one in found) for most in ("shared", "registers", "stack")
        )
        good = sum(one.fits(capability) for one in found)
        yield (
            f"sm_{capability:<4}{name:36}{len(found):4} variants {shared:7} bytes shared "
            f"{registers:4} registers {stack:5} stack  {good} fit"
        )
    for one in variants:
        if not one.fits(capability):
            told = one.error or f"needs {one.shared} bytes of shared memory"
            yield f"sm_{capability:<4}{one.kernel} {told}: {one.constants}"
        elif one.stack:
            yield f"sm_{capability:<4}{one.kernel} spills, {one.stack} bytes: {one.constants}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=int, nargs="+", choices=SHARED, default=TARGETS)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--kernels", choices=("auto", "small"), default="auto")
    options = parser.parse_args()
    good = True
    for target in options.target:
        dtype = getattr(torch, options.dtype)
        variants = compile_all(target, options.family, options.part, dtype, options.kernels)
        sys.stdout.write("\n".join((*table(target, variants), "")))
        sys.stdout.flush()
        good = good and all(one.fits(target) for one in variants)
    sys.exit(not good)


if __name__ == "__main__":
    main()
