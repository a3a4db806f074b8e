"""On a GPU: the same numbers as on the CPU, captured or not."""

from __future__ import annotations

import pytest
import torch

from cosyserve.models.config import EncoderConfig, FlowConfig, UNetConfig, VocoderConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.randomness import normal, uniform
from cosyserve.models.vocoder import stream
from tests.golden.fill import fill
from tests.golden.weights import filled_flow, filled_vocoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_random_numbers_are_the_same() -> None:
    seeds = torch.arange(1000) * 7919
    assert torch.equal(uniform(seeds, 3, 1), uniform(seeds.cuda(), 3, 1).cpu())
    index = torch.arange(5000)
    here = normal(torch.tensor(5), index, 9)
    there = normal(torch.tensor(5, device="cuda"), index.cuda(), 9).cpu()
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def test_flow_and_vocoder_agree_with_the_cpu() -> None:
    unet = UNetConfig("unet", 32, 2, 16, 1, 2)
    config = FlowConfig(EncoderConfig(64, 4, 96, 2, 1), unet, speech_tokens=50)
    flow = filled_flow(config, 0, fill).requires_grad_(False)
    vocoder = filled_vocoder(VocoderConfig(base=32, f0_channels=32), 0, fill).requires_grad_(False)
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 50, (60,), generator=g)
    parts = tokens[:20], torch.randn(40, 80, generator=g), torch.randn(192, generator=g)

    def run(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = FlowPrompt(*(part.to(device) for part in parts))
        moved: Flow = flow.to(device)
        ((mel, _),) = moved.advance([FlowState(prompt)], [tokens.to(device)], [True])
        state = stream.begin(vocoder.to(device), 3)
        ((wave, _),) = stream.advance(vocoder, [state], [mel], [True])
        return mel.cpu(), wave.cpu()

    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        here, there = run("cpu"), run("cuda")
    torch.testing.assert_close(here[0], there[0], atol=1e-3, rtol=0)
    error = (here[1] - there[1]).square().mean() / here[1].square().mean()
    assert error < 1e-3
