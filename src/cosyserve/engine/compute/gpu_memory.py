"""A budget of GPU memory for this process, and how large shapes may be that are to fit."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cosyserve.errors import InputError

GIB = 1 << 30

# The largest shapes, what share of the free memory one may take, and the bytes that a token of the
# flow and a frame of the vocoder need, as measured with CosyVoice3 and CosyVoice2.
MAX_TOKENS, TOKENS_SHARE, TOKEN_BYTES = 4096, 0.05, 300_000
MAX_FRAMES, FRAMES_SHARE, FRAME_BYTES = 4096, 0.1, 800_000
LONG_TOKENS = 1024  # prompt and speech of a long utterance, which must fit

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


def max_tokens(device: torch.device) -> int:
    """That the rows of one shape of the flow may have together."""
    if device.type != "cuda":
        return MAX_TOKENS
    fitting = int(TOKENS_SHARE * free_bytes(device)) // TOKEN_BYTES
    return min(MAX_TOKENS, max(LONG_TOKENS, fitting))


def max_frames(device: torch.device) -> int:
    """That the rows of one shape of the vocoder may have together."""
    if device.type != "cuda":
        return MAX_FRAMES
    return min(MAX_FRAMES, int(FRAMES_SHARE * free_bytes(device)) // FRAME_BYTES)


def budget_bytes(budget: str, total: int) -> int:
    """The bytes of a budget on a GPU that has so many."""
    if budget.endswith("GiB"):
        return int(float(budget.removesuffix("GiB")) * GIB)
    return int(float(budget) * total)
