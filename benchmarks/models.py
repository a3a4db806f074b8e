"""What the networks cost on this CPU, as ratios to what the same run measures as possible.

    python -m benchmarks.models [--threads 2] [--quick]

LM: a decoding step against one matrix-vector product over the same bytes. Flow and vocoder:
against the same number of operations as large matmuls and convolutions. Streaming: 30 s streamed
against whole, and the cost per second at 10 to 60 s. Loading: peak memory against the weights.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from cosyserve.checkpoints import native
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.parts import Parts
from cosyserve.contracts import Voice
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.models.config import (
    EncoderConfig,
    FlowConfig,
    LMConfig,
    ModelConfig,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.lm.lm import KVCache, SpeechLM
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT

console = Console()


def best(run: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest of some runs, after one to warm up."""
    run()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


Module = TypeVar("Module", bound=torch.nn.Module)


def randomise(module: Module) -> Module:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return module.eval().requires_grad_(False)


def lm_step(table: Table, dtype: torch.dtype) -> None:
    """One token at position 200, all weights read once."""
    config = LMConfig()
    with torch.device("meta"):
        lm = SpeechLM(config)
    lm = randomise(lm.to_empty(device="cpu").to(dtype))
    cache = KVCache.empty(config, 1, 256, dtype=dtype)
    start, ids = torch.tensor([200]), torch.tensor([[config.sos]])
    read = sum(p.numel() for name, p in lm.named_parameters() if name != "embedding.weight")
    rows = read // config.hidden
    matrix = torch.randn(rows, config.hidden).to(dtype)
    vector = torch.randn(1, config.hidden).to(dtype)
    # In turns, so that both meet the same neighbours on the machine.
    rounds = [
        (
            best(lambda: lm.logits(lm.extend(ids, start, cache, 201)), 2),
            best(lambda: torch.nn.functional.linear(vector, matrix), 2),
        )
        for _ in range(6)
    ]
    step, floor = (min(times) for times in zip(*rounds, strict=True))
    size = matrix.element_size() * read / 1e9
    name = f"LM step, {str(dtype).removeprefix('torch.')}"
    detail = f"{size:.2f} GB, {size / step:.1f} GB/s"
    table.add_row(name, f"{1e3 * step:.1f} ms", f"{1e3 * floor:.1f} ms", ratio(step, floor), detail)


def matmul_rate(size: int = 1024) -> float:
    """FLOP/s of large square products."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / best(lambda: a @ b, 50)


def convolution_rate(channels: int = 256, length: int = 4096) -> float:
    """FLOP/s of a large convolution of kernel 7."""
    x, w = torch.randn(1, channels, length), torch.randn(channels, channels, 7)
    flops = 2 * channels * channels * 7 * length
    return flops / best(lambda: torch.nn.functional.conv1d(x, w, padding=3), 20)


def against_rate(table: Table, name: str, run: Callable[[], object], rate: float) -> None:
    with FlopCounterMode(display=False) as counter:
        run()
    flops = counter.get_total_flops()
    took, floor = best(run, 2), flops / rate
    detail = f"{flops / 1e9:.0f} GFLOP at {flops / took / 1e9:.0f} of {rate / 1e9:.0f} GFLOP/s"
    table.add_row(name, f"{1e3 * took:.0f} ms", f"{1e3 * floor:.0f} ms", ratio(took, floor), detail)
    if took > 1.3 * floor:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            run()
        rows = seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
        console.print(f"[bold]{name}: where the time goes[/bold]", rows, sep="\n", soft_wrap=True)


def ratio(found: float, floor: float) -> str:
    return f"{found / floor:.2f}"


def token2wav_full_size(table: Table) -> None:
    flow = randomise(Flow(FlowConfig()))
    assert isinstance(flow, Flow)
    prompt = FlowPrompt(torch.randint(0, 6561, (87,)), torch.randn(174, 80), torch.randn(192))
    tokens = torch.randint(0, 6561, (66,))
    against_rate(
        table,
        "flow, 87 + 63 tokens",
        lambda: flow.advance([FlowState(prompt)], [tokens], [False]),
        matmul_rate(),
    )
    vocoder = randomise(HiFT(VocoderConfig()))
    assert isinstance(vocoder, HiFT)
    mel = torch.randn(80, 150)
    against_rate(
        table,
        "vocoder, 3 s",
        lambda: stream.advance(vocoder, [stream.begin(vocoder, 0)], [mel], [True]),
        convolution_rate(),
    )


def small_parts(channels: int = 96) -> Parts:
    """Small, with the published model's balance of attention and the rest."""
    unet = UNetConfig("unet", channels, heads=2, head_dim=16, blocks=1, mid=4)
    config = ModelConfig(
        flow=FlowConfig(EncoderConfig(96, 2, 384, 2, 1), unet, steps=4),
        vocoder=VocoderConfig(base=64, f0_channels=64),
    )
    assert config.flow is not None
    assert config.vocoder is not None
    torch.manual_seed(0)
    modules = {"flow": randomise(Flow(config.flow)), "vocoder": randomise(HiFT(config.vocoder))}
    return Parts(config, {name: dict(module.state_dict()) for name, module in modules.items()})


def streaming(table: Table, seconds: list[int]) -> None:
    token2wav = Token2Wav(*assemble(small_parts()).need_token2wav())
    random = np.random.default_rng(0)
    voice = Voice(
        "",
        random.integers(0, 6561, 87, dtype=np.int32),
        random.standard_normal((174, 80), np.float32),
        random.standard_normal(192, np.float32),
    )
    costs = {}
    for length in seconds:
        tokens = torch.randint(0, 6561, (25 * length,)).tolist()

        def stream(tokens: list[int] = tokens) -> None:
            state = token2wav.begin(voice, with_prompt=True, seed=0, speed=1.0)
            for end in hop_ends(state.prompt_tokens, state.grid):
                if end + state.lookahead > len(tokens):
                    break
                known = tokens[: end + state.lookahead]
                ((_, state),) = token2wav.advance([state], [known], [False])
            token2wav.advance([state], [tokens], [True])

        def at_once(tokens: list[int] = tokens) -> None:
            state = token2wav.begin(voice, with_prompt=True, seed=0, speed=1.0)
            token2wav.whole([state], [tokens])

        costs[length] = best(stream, 1) / length
        if length == 30:
            whole = best(at_once, 1)
            streamed = 30 * costs[30]
            table.add_row(
                "30 s streamed / whole, small",
                f"{streamed:.2f} s",
                f"{whole:.2f} s",
                ratio(streamed, whole),
                "goal: 3",
            )
    spread = max(costs.values()) / min(costs.values())
    detail = ", ".join(f"{n} s: {1e3 * cost:.0f} ms" for n, cost in costs.items())
    table.add_row("cost per streamed second, max / min", "", "", f"{spread:.2f}", detail)


LOADING = """
import sys, torch
from cosyserve.checkpoints import testmodel
from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import assemble
assemble(testmodel.random_parts())  # what torch loads once is not the model's
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM")) * 1024
before = peak()
loaded = load_folder(__import__("pathlib").Path(sys.argv[1]))
total = sum(float(p.sum()) for part in loaded.need_token2wav() for p in part.parameters())
print(peak() - before)
"""


def loading(table: Table) -> None:
    """A native folder of about 200 MB, every weight read once after loading."""
    parts = small_parts(channels=768)
    size = sum(t.numel() * 4 for state in parts.states.values() for t in state.values())
    with tempfile.TemporaryDirectory() as folder:
        native.write(parts, Path(folder) / "model")
        command = [sys.executable, "-c", LOADING, f"{folder}/model"]
        peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    table.add_row(
        "peak memory of loading / weights",
        f"{peak / 2**20:.0f} MiB",
        f"{size / 2**20:.0f} MiB",
        ratio(peak, size),
        "goal: 1.15",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="leave out the full-size networks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = Table("what", "measured", "possible", "ratio", "", title=f"{options.threads} threads")
    with torch.inference_mode():
        loading(table)
        streaming(table, [10, 20, 30] if options.quick else [10, 20, 30, 40, 60])
        if not options.quick:
            lm_step(table, torch.float32)
            lm_step(table, torch.bfloat16)
            token2wav_full_size(table)
    console.print(table)


if __name__ == "__main__":
    main()
