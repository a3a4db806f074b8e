"""The speech LM alone: a decoding step by batch, a prompt, and the same without our kernels."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.bench import PROMPT_POSITIONS, Bench
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs.lm import PrefillPiece
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.models.config import LMConfig

HELD = 200  # positions that rows hold when a step is timed
REACH = 512  # and may come to meanwhile


def runner(bench: Bench, slots: int) -> LMRunner:
    made = LMRunner(bench.lm, slots, 2 * REACH)
    made.warm_up()
    return made


def step_ms(bench: Bench, name: str, made: LMRunner, rows: int) -> float:
    config, steps = bench.lm.config, made._graphs

    def run() -> None:
        steps.decode(rows, REACH, Sampling().top_k)

    with torch.inference_mode(), made.queue.use():
        for slot in range(rows):
            row = Generation(WholeText(config, [config.sos], 10_000), slot, Sampling(), 10_000)
            row.length = HELD
            steps.place(slot, row, config.text_vocab, active=True)
        # Few enough steps that no row comes to its end.
        return bench.train_ms(name, run, bench.few(40, 2))


def lm_step_ms(bench: Bench) -> dict[str, float]:
    batches = (1, 16, 64, 128, 256)
    made = runner(bench, batches[-1])
    return {str(n): step_ms(bench, f"lm_step_{n}", made, n) for n in batches}


def lm_step_without_kernels_ms(bench: Bench) -> dict[str, float]:
    """The plain module, captured."""
    with bench.without_kernels():
        made = runner(bench, 64)
    return {str(n): step_ms(bench, f"lm_plain_step_{n}", made, n) for n in (1, 64)}


def lm_step_int8_ms(bench: Bench) -> dict[str, float]:
    """With weights in eight bits."""
    bench.lm.eight_bits = True
    try:
        made = runner(bench, 2)
        return {str(n): step_ms(bench, f"lm_int8_step_{n}", made, n) for n in (1, 2)}
    finally:
        bench.lm.eight_bits = False


def lm_loop_ms(bench: Bench) -> dict[str, float]:
    """Per token of the whole loop, host included: what rows that speak really get."""
    config, found = bench.lm.config, {}
    for rows in (1, 64):
        made = runner(bench, rows)
        for seed in range(rows):
            prompt = [config.sos] * PROMPT_POSITIONS
            made.join(Generation(WholeText(config, prompt, 10_000), seed, Sampling(), 10_000))
        while any(not row.tokens for row in made.rows):
            made.step()
        found[str(rows)] = bench.train_ms(f"lm_loop_{rows}", made.step, bench.few(80, 2))
    return found


def prefill_110_ms(bench: Bench) -> float:
    made = runner(bench, 1)
    ids = [bench.lm.config.sos] * PROMPT_POSITIONS

    def run() -> None:
        made._graphs.prefill([PrefillPiece(0, ids, 0, True)], Sampling().top_k)

    with torch.inference_mode(), made.queue.use():
        return bench.wall_ms("prefill_110", run, bench.few(50, 2))


def transformers_step_ms(bench: Bench) -> dict[str, float]:
    """Qwen2 of the same size with a static cache, its step as one CUDA graph."""
    from transformers import Qwen2Config, Qwen2Model, StaticCache

    found = {}
    ours: LMConfig = bench.lm.config
    config = Qwen2Config(
        hidden_size=ours.hidden,
        intermediate_size=ours.intermediate,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads,
        vocab_size=32,
    )
    with torch.device(bench.device):
        model: Any = Qwen2Model(config)
        model = model.to(bench.dtype).eval().requires_grad_(False)
        head = torch.nn.Linear(ours.hidden, ours.classes).to(bench.dtype).requires_grad_(False)
    for rows in (1, 64):
        cache = StaticCache(config=config, max_cache_len=REACH)
        ids = torch.zeros(rows, 1, dtype=torch.long, device=bench.device)
        at = torch.full((1,), HELD, device=bench.device)

        def step(ids: torch.Tensor = ids, at: torch.Tensor = at, cache: Any = cache) -> None:
            hidden = model(input_ids=ids, past_key_values=cache, cache_position=at, use_cache=True)
            head(hidden.last_hidden_state[:, -1]).argmax(-1)

        with torch.inference_mode():
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                step()
            found[str(rows)] = bench.train_ms(f"transformers_{rows}", graph.replay, 40)
    return found


def roofline(bench: Bench) -> dict[str, float]:
    """What this device does with large copies and large products, and what the LM reads."""
    size = bench.few(1 << 30, 1 << 20)
    source, target = (torch.ones(size, dtype=torch.uint8, device=bench.device) for _ in range(2))
    copy = bench.train_ms("copy", lambda: target.copy_(source), 20)
    side = bench.few(8192, 128)
    a, b = (torch.randn(side, side, device=bench.device).to(bench.dtype) for _ in range(2))
    product = bench.train_ms("product", lambda: a @ b, 20)
    named = bench.lm.named_parameters()
    weights = sum(p.numel() * p.element_size() for n, p in named if n != "embedding.weight")
    return {
        "copy_gb_per_s": 2e-6 * size / copy,
        "product_tflop_per_s": 2e-9 * side**3 / product,
        "lm_weights_gb": 1e-9 * weights,
    }
