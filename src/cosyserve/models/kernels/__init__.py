"""Kernels in Triton's language for a GPU; each has a plain function of `models` as its reference.

All files with kernels import the package `triton`, which torch for CUDA brings along. Nothing else
imports them before `kernels_supported` has seen such a GPU, but this file may always be imported.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

AVAILABLE = find_spec("triton") is not None


def kernels_supported(device: torch.device) -> bool:
    """Whether the kernels run on this device: their tiles need the 227 KiB of shared memory of
    Hopper and of Blackwell in data centers."""
    return AVAILABLE and device.type == "cuda" and _capability(device)[0] in (9, 10)


def pdl(tensor: Tensor) -> bool:
    """Whether a launch may begin while the one before it ends (programmatic dependent launch): it
    then loads its weights, and waits before it touches anything that another launch touches."""
    return tensor.is_cuda and _capability(tensor.device) >= (9, 0)


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
