"""A budget of GPU memory for this process."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cosyserve.errors import InputError

GIB = 1 << 30

_limits: dict[torch.device, int] = {}  # bytes that this process was given


def limit_gpu_memory(budget: str, devices: Iterable[torch.device]) -> None:
    """Lets this process have so much of each GPU: a share ("0.5") or GiB ("12GiB").

    More than that is out of memory, as if the GPU were smaller. What CUDA takes for the process
    itself comes on top.
    """
    for device in devices:
        if device.type != "cuda":
            continue
        free, total = torch.cuda.mem_get_info(device)
        ours = torch.cuda.memory_reserved(device)
        size = budget_bytes(budget, total)
        if size > free + ours:
            raise InputError(
                f"COSYSERVE_GPU_MEMORY={budget}: {device} has {(free + ours) / GIB:.1f} of "
                f"{total / GIB:.1f} GiB free; set less, or end what uses it"
            )
        torch.cuda.set_per_process_memory_fraction(size / total, device)
        _limits[device] = size


def free_bytes(device: torch.device) -> int:
    """That this process may still have of a GPU."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    ours = torch.cuda.memory_reserved(device)
    return max(0, min(free, _limits.get(device, total) - ours))


def budget_bytes(budget: str, total: int) -> int:
    """The bytes of a budget on a GPU that has so many."""
    if budget.endswith("GiB"):
        return int(float(budget.removesuffix("GiB")) * GIB)
    return int(float(budget) * total)
