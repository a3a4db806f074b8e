"""Where a model is loaded to."""

from __future__ import annotations

import pytest
import torch

from cosyserve.checkpoints.load import device_of, load_model
from cosyserve.errors import InputError


def test_a_gpu_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what it holds would be counted twice."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert device_of("auto") == device_of("cuda") == device_of("cuda:0") == torch.device("cuda:0")
    assert device_of("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("name", ["mps", "meta", "cpu:0", "cuda:x", ""])
def test_devices_that_models_do_not_know(name: str) -> None:
    with pytest.raises(InputError, match="use auto, cpu, cuda or cuda:N"):
        device_of(name)


def test_the_test_model_ignores_nothing() -> None:
    with pytest.raises(InputError, match="no file 'other"):
        load_model("test", lm_file="other.pt")
    with pytest.raises(InputError, match="dtype must be auto"):
        load_model("test", dtype="float8")
