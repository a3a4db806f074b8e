"""Chunks in a queue: what was computed wrongly is told, and leaves nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.prefix_cache import PrefixCache
from cosyserve.engine.compute.queued_audio import Launches, QueuedAudio
from cosyserve.errors import CosyError
from cosyserve.models.config import EncoderConfig, FlowConfig, UNetConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt


@pytest.mark.parametrize("sample", [0.5, float("nan"), float("inf")])
def test_what_is_known_of_a_prompt_is_forgotten_with_speech_that_is_no_number(
    sample: float,
) -> None:
    flow = Flow(FlowConfig(EncoderConfig(32, 2, 48, 1, 1), UNetConfig("unet", 32, 2, 16, 1, 1)))
    cache, queue = PrefixCache(flow, [(2, 8)], slots=1), DeviceQueue(torch.device("cpu"))
    prompt = FlowPrompt(torch.zeros(40), torch.zeros(80, 80), torch.zeros(192), "a")
    filling = cache.borrow(prompt)
    assert filling
    cache.give_back(filling, queue.mark(), done=True)
    state: Any = SimpleNamespace(flow=SimpleNamespace(prompt=prompt))

    def launches() -> Launches:
        yield
        return [state], queue.read(torch.tensor([0.0, sample]))

    audio = QueuedAudio(queue, [state], launches(), cache)
    assert audio.poll()
    if sample == 0.5:
        assert len(audio.get()) == 1
        assert cache.known(prompt) == 25
    else:
        with pytest.raises(CosyError, match="NaN"):
            audio.get()
        assert cache.known(prompt) is None
