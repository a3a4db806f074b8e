from __future__ import annotations

import logging

import pytest
import torch

from cosyserve.engine.compute.warm_up import warm_up
from cosyserve.errors import CosyError


class Part:
    def __init__(self, shapes: int) -> None:
        self.shapes = shapes

    def warm_up(self) -> int:
        if self.shapes < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.shapes

    def reserve(self) -> None:
        pass


def test_it_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        warm_up({"LM": Part(7), "nothing": Part(0)}, 8)
    (line,) = caplog.messages
    assert "LM has 7 shapes ready" in line


def test_too_many_sessions_are_told_what_to_change() -> None:
    with pytest.raises(CosyError, match="256 sessions: set COSYSERVE_SLOTS"):
        warm_up({"LM": Part(-1)}, 256)
