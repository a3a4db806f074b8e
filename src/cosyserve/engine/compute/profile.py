"""What a GPU is tuned for: how many sessions and chunks share it, and how quickly hops grow.

On a CPU only the hops matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cosyserve.errors import InputError

CPU_SLOTS = 8


@dataclass(frozen=True)
class Profile:
    slots: int  # sessions that run at once
    rows: tuple[int, ...]  # chunks that are computed in one call, by rising captured shape
    hop: int  # tokens of the second hop; each later one is twice as long
    whole_batches: int  # of whole texts that share a large GPU while nobody streams

    def slots_on(self, device: torch.device) -> int:
        return self.slots if device.type == "cuda" else CPU_SLOTS


LATENCY = Profile(64, (1, 2, 4, 8), 25, 1)
THROUGHPUT = Profile(256, (1, 2, 4, 8, 16, 32), 50, 2)
PROFILES = {"latency": LATENCY, "throughput": THROUGHPUT}


def profile(name: str) -> Profile:
    if name not in PROFILES:
        raise InputError(f"profile must be {' or '.join(PROFILES)}, got {name!r}")
    return PROFILES[name]
