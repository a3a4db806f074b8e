"""On a GPU: the same numbers as on the CPU, and a decoding step that is one CUDA graph."""

from __future__ import annotations

import pytest
import torch

from cosyserve.contracts import Sampling
from cosyserve.models import hift_stream
from cosyserve.models.config import EncoderConfig, FlowConfig, LMConfig, UNetConfig, VocoderConfig
from cosyserve.models.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.lm import KVCache, SpeechLM
from cosyserve.models.randomness import normal, uniform
from cosyserve.models.sampling import sample
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
        state = hift_stream.begin(vocoder.to(device), 3)
        ((wave, _),) = hift_stream.advance(vocoder, [state], [mel], [True])
        return mel.cpu(), wave.cpu()

    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        here, there = run("cpu"), run("cuda")
    torch.testing.assert_close(here[0], there[0], atol=1e-3, rtol=0)
    error = (here[1] - there[1]).square().mean() / here[1].square().mean()
    assert error < 1e-3


def test_a_step_with_its_draw_is_one_cuda_graph() -> None:
    config = LMConfig(64, 96, 2, 4, 2, text_vocab=50, speech_tokens=40)
    torch.manual_seed(0)
    lm = SpeechLM(config).cuda().eval().requires_grad_(False)
    rows, steps, sampling = 3, 20, Sampling(top_k=5)
    seeds = torch.arange(rows, device="cuda")
    forbidden = torch.zeros(config.classes, dtype=torch.bool, device="cuda")
    prompt = torch.randint(0, 50, (rows, 6), device="cuda")

    def start() -> tuple[KVCache, dict[str, torch.Tensor]]:
        cache = KVCache.empty(config, rows, 64, device="cuda")
        hidden = lm.extend(prompt, torch.zeros(rows, dtype=torch.long, device="cuda"), cache, 64)
        state = {
            "token": lm.logits(hidden[:, -1]).argmax(-1),
            "length": torch.full((rows,), 6, device="cuda"),
            "step": torch.zeros((), dtype=torch.long, device="cuda"),
            "history": torch.full((rows, 10), -1, device="cuda"),
        }
        return cache, state

    def step(cache: KVCache, s: dict[str, torch.Tensor]) -> None:
        ids = (s["token"] + config.text_vocab)[:, None]
        logits = lm.logits(lm.extend(ids, s["length"], cache, 64)[:, -1])
        u1, u2 = uniform(seeds, s["step"], 0), uniform(seeds, s["step"], 1)
        drawn = sample(logits, s["history"], u1, u2, forbidden, sampling).ids
        s["token"].copy_(drawn)
        s["history"].copy_(torch.cat((s["history"][:, 1:], drawn[:, None]), dim=1))
        s["length"] += 1
        s["step"] += 1

    def run(advance: object, s: dict[str, torch.Tensor]) -> torch.Tensor:
        said = []
        for _ in range(steps):
            advance()  # type: ignore[operator]
            said.append(s["token"].clone())
        return torch.stack(said)

    with torch.inference_mode():
        cache, state = start()
        eager = run(lambda: step(cache, state), state)
        cache, state = start()
        kept = {name: value.clone() for name, value in state.items()}
        step(cache, state)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(cache, state)
        fresh, _ = start()
        cache.keys.copy_(fresh.keys)
        cache.values.copy_(fresh.values)
        for name, value in kept.items():
            state[name].copy_(value)
        replayed = run(graph.replay, state)
    assert torch.equal(eager, replayed)
