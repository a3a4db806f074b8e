from __future__ import annotations

import pytest
import torch

from cosyserve.checkpoints.load import SHIPPED_FOLDER, load_folder
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.int8 import packed, unpacked


def test_what_was_packed_comes_back_within_half_a_level() -> None:
    torch.manual_seed(0)
    state = {"a.weight": torch.randn(5, 4, 3), "a.bias": torch.randn(5), "none": torch.zeros(2, 2)}
    state["a.weight"][1] *= 1e-3
    small = packed(state)
    assert small["a.weight"].dtype is torch.int8
    actual = unpacked("file", small)
    assert actual.keys() == state.keys()
    assert torch.equal(actual["a.bias"], state["a.bias"].half())
    assert torch.equal(actual["none"].float(), state["none"])
    for row, was in zip(actual["a.weight"].float(), state["a.weight"], strict=True):
        assert (row - was).abs().max() <= 0.51 * was.abs().max() / 127 + 1e-3 * was.abs().max()


def test_a_state_without_int8_stays() -> None:
    state = {"w": torch.randn(2, 2), "norm.scale": torch.ones(2)}
    assert unpacked("file", state) == state


def test_a_scale_that_does_not_fit_is_named() -> None:
    small = packed({"w": torch.randn(3, 2)})
    for broken in ({"w": small["w"]}, small | {"w.scale": torch.ones(2)}):
        with pytest.raises(CheckpointError, match="'w' is int8 without a scale per row"):
            unpacked("file", broken)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 600.0])
def test_a_scale_that_half_precision_can_t_hold_is_named(scale: float) -> None:
    state = packed({"w": torch.randn(4, 6)})
    state["w.scale"][2] = scale
    with pytest.raises(CheckpointError, match=r"'w\.scale' is beyond half"):
        unpacked("lm.safetensors", state)


def test_a_cpu_can_t_compute_in_eight_bits() -> None:
    with pytest.raises(InputError, match="int8 is for a GPU"):
        load_folder(SHIPPED_FOLDER, "cpu", torch.int8)
