"""Where a model is loaded to."""

from __future__ import annotations

import pytest
import torch

from cosyserve.checkpoints.load import device_of


def test_a_gpu_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what it holds would be counted twice."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert device_of("auto") == device_of("cuda") == device_of("cuda:0") == torch.device("cuda:0")
    assert device_of("cuda:1") == torch.device("cuda", 1)
