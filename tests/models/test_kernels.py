"""A GPU gets the kernels that it can run, and is told which ones and why."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch

from cosyserve.checkpoints.load import gpu_dtype
from cosyserve.choices import KernelChoice
from cosyserve.models import kernels
from cosyserve.models.kernels import GPU, Budget

DEVICE = torch.device("meta")  # stands for a GPU
KIB = 1 << 10
H200, B200 = GPU((9, 0), 227 * KIB, 132), GPU((10, 0), 227 * KIB, 148)
A100, L4 = GPU((8, 0), 163 * KIB, 108), GPU((8, 9), 99 * KIB, 58)
RTX5090, T4 = GPU((12, 0), 99 * KIB, 170), GPU((7, 5), 64 * KIB, 40)

Machine = Callable[[GPU | None, KernelChoice], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    def has(gpu: GPU | None, choice: KernelChoice) -> None:
        monkeypatch.setattr(kernels, "AVAILABLE", True)
        monkeypatch.setattr(kernels, "_triton", lambda: "3.7.1")
        monkeypatch.setattr(kernels, "gpu", lambda _: gpu)
        monkeypatch.setattr(kernels, "_chosen", choice)

    return has


@pytest.mark.parametrize(
    ("gpu", "choice", "budget", "early", "said"),
    [
        (H200, "auto", Budget.HOPPER, True, "Hopper's tiles: a program has 227 KiB"),
        (
            B200,
            "auto",
            Budget.HOPPER,
            True,
            "without those in Gluon, which need compute",
        ),
        (H200, "small", Budget.SMALL, False, "small tiles, as asked for: a program has 227 KiB"),
        (A100, "auto", Budget.SMALL, False, "163 KiB of shared memory, Hopper's need 227"),
        (L4, "auto", Budget.SMALL, False, "99 KiB of shared memory, Hopper's need 227"),
        (L4, "small", Budget.SMALL, False, "small tiles, as asked for"),
        (RTX5090, "auto", Budget.SMALL, False, "99 KiB of shared memory, Hopper's need 227"),
    ],
)
def test_tiles_are_those_that_fit(
    machine: Machine, gpu: GPU, choice: KernelChoice, budget: Budget, early: bool, said: str
) -> None:
    machine(gpu, choice)
    assert kernels.kernels_supported(DEVICE)
    assert kernels.budget(DEVICE) is budget
    assert kernels.pdl(torch.empty(0, device=DEVICE)) is early
    assert kernels.processors(DEVICE) == gpu.processors
    assert kernels.kernels_of(DEVICE).startswith("kernels with ")
    assert said in kernels.kernels_of(DEVICE)


@pytest.mark.parametrize(
    ("gpu", "choice", "why"),
    [
        (T4, "auto", "compute capability 7.5 has no bfloat16, which they are written for"),
        (T4, "small", "compute capability 7.5 has no bfloat16, which they are written for"),
        (GPU((9, 4), 64 * KIB, 110), "auto", "a program has 64 KiB of shared memory, they need 99"),
        (H200, "off", "they are turned off"),
        (None, "auto", "it is no CUDA device"),
    ],
)
def test_others_have_the_plain_networks(
    machine: Machine, gpu: GPU | None, choice: KernelChoice, why: str
) -> None:
    machine(gpu, choice)
    assert not kernels.kernels_supported(DEVICE)
    told = f"no kernels, but the plain networks in CUDA graphs: {why}"
    assert kernels.kernels_of(DEVICE) == told


def test_the_log_says_which_kernels_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpus = {1: T4, 0: L4}
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    monkeypatch.setattr(kernels, "_triton", lambda: "")
    monkeypatch.setattr(kernels, "_chosen", "off")
    monkeypatch.setattr(kernels, "gpu", lambda device: gpus[device.index])
    devices = {torch.device("cpu"), *(torch.device("cuda", index) for index in gpus)}
    with caplog.at_level(logging.INFO, "cosyserve"):
        kernels.use_kernels("auto", devices)
    ada, turing = caplog.messages
    assert ada.startswith("cuda:0: kernels with small tiles: ")
    assert turing.startswith("cuda:1: no kernels, but the plain networks in CUDA graphs: ")


@pytest.mark.parametrize(
    ("version", "there"), [("3.6.0", True), ("3.7.1", True), ("3.5.1", False), ("3.70.0", False)]
)
def test_kernels_in_gluon_are_for_versions_that_are_known(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str, there: bool
) -> None:
    machine(H200, "auto")
    monkeypatch.setattr(kernels, "_triton", lambda: version)
    assert kernels.gluon(DEVICE) is there
    told = "without those in Gluon, which need compute capability 9.0 and Triton 3.6 or 3.7"
    assert (told in kernels.kernels_of(DEVICE)) is not there


def test_kernels_need_a_compiler(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(H200, "auto")
    monkeypatch.setattr(kernels, "AVAILABLE", False)
    assert not kernels.kernels_supported(DEVICE)
    assert "triton is not installed" in kernels.kernels_of(DEVICE)


def test_interpreted_kernels_are_those_of_an_h200() -> None:
    cpu = torch.device("cpu")
    assert (kernels.budget(cpu), kernels.processors(cpu)) == (Budget.HOPPER, 132)
    assert not kernels.pdl(torch.empty(0))


@pytest.mark.parametrize(
    ("gpu", "dtype"), [(A100, torch.bfloat16), (L4, torch.bfloat16), (T4, torch.float32)]
)
def test_a_gpu_without_bfloat16_computes_in_float32(
    gpu: GPU, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosyserve.checkpoints.load.gpu", lambda _: gpu)
    assert gpu_dtype(DEVICE) is dtype
