"""Kernels in Triton's language for a GPU; each has a plain function of `models` as its reference.

All files with kernels import the package `triton`, which torch for CUDA brings along. Nothing else
imports them before `kernels_supported` has seen such a GPU, but this file may always be imported.
"""

import logging
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from cosyserve.choices import KernelChoice

log = logging.getLogger(__name__)

AVAILABLE = find_spec("triton") is not None
BFLOAT16 = 8, 0  # the first compute capability that multiplies it
WARPGROUPS = 9, 0  # the only one whose groups of warps multiply what lies in shared memory
GLUON = ("3.6.", "3.7.")  # Triton's versions whose Gluon is used: it changes with each


class Budget(IntEnum):
    """The shared memory of a program that tiles are cut for, in bytes."""

    HOPPER = 227 << 10  # Blackwell in data centers has as much
    SMALL = 99 << 10  # of Ada, and of other Ampere and Blackwell; an A100 has 163 KiB


class GPU(NamedTuple):
    """What kernels have to know of a device."""

    capability: tuple[int, int]
    shared: int  # bytes that a program may have
    processors: int


H200 = GPU((9, 0), Budget.HOPPER, 132)
_chosen: KernelChoice = "auto"


def use_kernels(choice: KernelChoice, devices: Iterable[torch.device] = ()) -> None:
    """For all networks that are made ready from now on in this process: by what a GPU has, with
    small tiles, or none. The log says what these devices get."""
    global _chosen
    _chosen = choice
    for device in sorted(devices, key=str):
        if device.type == "cuda":
            log.info("%s: %s", device, kernels_of(device))


def kernels_supported(device: torch.device) -> bool:
    """Whether there are kernels for this device."""
    return not _lacking(device)


def budget(device: torch.device) -> Budget:
    """What tiles on this device are cut for; elsewhere kernels are interpreted as for an H200."""
    enough = (gpu(device) or H200).shared >= Budget.HOPPER
    return Budget.HOPPER if enough and _chosen != "small" else Budget.SMALL


def processors(device: torch.device) -> int:
    """How many programs can run side by side, each on a processor of its own."""
    return (gpu(device) or H200).processors


def pdl(tensor: Tensor) -> bool:
    """Whether a launch may begin while the one before it ends (programmatic dependent launch): it
    then loads its weights, and waits before it touches anything that another launch touches. Small
    tiles do without, as most GPUs that want them must."""
    found = gpu(tensor.device)
    if found is None or found.capability < (9, 0):
        return False
    return budget(tensor.device) is Budget.HOPPER


def gluon(device: torch.device) -> bool:
    """Whether there are kernels in Gluon for this device."""
    found = gpu(device)
    if found is None or found.capability != WARPGROUPS or budget(device) is not Budget.HOPPER:
        return False
    return _triton().startswith(GLUON)


def kernels_of(device: torch.device) -> str:
    """Which kernels a GPU gets, and why."""
    if lacking := _lacking(device):
        return f"no kernels, but the plain networks in CUDA graphs: {lacking}"
    found = gpu(device)
    assert found
    has = f"a program has {found.shared >> 10} KiB of shared memory"
    if budget(device) is Budget.HOPPER:
        known = " or ".join(version.removesuffix(".") for version in GLUON)
        needs = f"; without those in Gluon, which need compute capability 9.0 and Triton {known}"
        return f"kernels with Hopper's tiles: {has}{'' if gluon(device) else needs}"
    if _chosen == "small":
        return f"kernels with small tiles, as asked for: {has}"
    return f"kernels with small tiles: {has}, Hopper's need {Budget.HOPPER >> 10}"


def _lacking(device: torch.device) -> str:
    """Why there are no kernels for this device; "": there are."""
    found = gpu(device)
    if found is None:
        return "it is no CUDA device"
    if _chosen == "off":
        return "they are turned off"
    if not AVAILABLE:
        return "the package triton is not installed"
    if found.capability < BFLOAT16:
        major, minor = found.capability
        return f"compute capability {major}.{minor} has no bfloat16, which they are written for"
    if found.shared < Budget.SMALL:
        needed = Budget.SMALL >> 10
        return f"a program has {found.shared >> 10} KiB of shared memory, they need {needed}"
    return ""


def _triton() -> str:
    """The version of Triton; "": there is none."""
    if not AVAILABLE:
        return ""
    import triton

    return str(triton.__version__)


@cache
def gpu(device: torch.device) -> GPU | None:
    """None: it is no CUDA device."""
    if device.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", 0)  # which AMD's don't tell
    return GPU((found.major, found.minor), shared, found.multi_processor_count)
