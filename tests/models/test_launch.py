"""Kernels take their arguments by name, beside the options of their launch, and are compiled on all
cores."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from triton.backends.nvidia.compiler import CUDAOptions

from cosyserve.models.flow import kernels as flow
from cosyserve.models.kernels.launch import TRIES, CompilerPool
from cosyserve.models.lm import kernels as lm
from cosyserve.models.vocoder import kernels as vocoder

RESERVED = {*CUDAOptions.__dataclass_fields__, "device", "device_type", "grid", "stream", "warmup"}


def test_no_argument_of_a_kernel_is_taken_for_an_option() -> None:
    kernels = {
        f"{info.name}.{name}": set(kernel.arg_names)
        for package in (flow, lm, vocoder)
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for name, kernel in vars(importlib.import_module(info.name)).items()
        if hasattr(kernel, "arg_names")
    }
    assert len(kernels) > 20
    assert {name: names & RESERVED for name, names in kernels.items() if names & RESERVED} == {}


@pytest.mark.parametrize("failures", [0, TRIES - 1, TRIES])
def test_what_python_could_not_parse_is_compiled_again(failures: int) -> None:
    tries = iter(range(TRIES))

    def work() -> str:
        if next(tries) < failures:
            raise SystemError("AST constructor recursion depth mismatch")
        return "compiled"

    with CompilerPool(1) as pool:
        compiled = pool.submit(work)
    if failures < TRIES:
        assert compiled.result() == "compiled"
    else:
        assert isinstance(compiled.exception(), SystemError)
