"""A budget of GPU memory becomes a limit of this process, on a GPU that is played here."""

from __future__ import annotations

import pytest
import torch

from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.gpu_memory import (
    GIB,
    free_bytes,
    limit_gpu_memory,
    max_frames,
    max_tokens,
)
from cosyserve.errors import InputError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[torch.device, float]:
    """A GPU of 40 GiB: 30 are free, 2 are ours -> the shares that were set."""
    shares: dict[torch.device, float] = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30 * GIB, 40 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2 * GIB)
    monkeypatch.setattr(gpu_memory, "_limits", {})
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda share, device: shares.update({device: share}),
    )
    return shares


@pytest.mark.parametrize(("budget", "share"), [("0.5", 0.5), ("10GiB", 0.25), ("32GiB", 0.8)])
def test_a_budget_is_a_share_of_the_gpu(
    budget: str, share: float, limits: dict[torch.device, float]
) -> None:
    limit_gpu_memory(budget, [CPU, CUDA])
    assert limits == {CUDA: pytest.approx(share)}


@pytest.mark.parametrize(("budget", "left"), [("1", 30), ("0.5", 18), ("1GiB", 0)])
def test_what_is_left_is_within_the_budget(
    budget: str, left: int, limits: dict[torch.device, float]
) -> None:
    if budget != "1":
        limit_gpu_memory(budget, [CUDA])
    assert free_bytes(CUDA) == left * GIB
    assert free_bytes(CPU) == 0


@pytest.mark.parametrize("budget", ["1", "33GiB"])
def test_more_than_is_free_is_refused(budget: str, limits: dict[torch.device, float]) -> None:
    with pytest.raises(InputError, match=f"{budget}: cuda:0 has 32.0 of 40.0 GiB free; set less"):
        limit_gpu_memory(budget, [CUDA])
    assert limits == {}


@pytest.mark.parametrize(
    ("free", "tokens", "frames"), [(4, 1024, 536), (10, 1789, 1342), (100, 4096, 4096)]
)
def test_a_small_gpu_has_small_shapes(
    free: int, tokens: int, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda device: free * GIB)
    assert (max_tokens(CUDA), max_frames(CUDA)) == (tokens, frames)
    assert (max_tokens(CPU), max_frames(CPU)) == (4096, 4096)
