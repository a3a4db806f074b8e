"""What other GPUs should reach, calculated from what an H200 did: nothing was measured on them.

    python -m benchmarks.gpu.expected

A time is three things one after another: a chain of launches that wait for each other, weights that
are read, and products. Of the H200's time the chain is what is left when large copies and large
products, as fast as it was measured to do them, are taken away; on another GPU it is the same, and
bandwidth and products are as much less as its datasheet says. That is what the hardware allows: a
GPU that can't begin a launch while the one before it ends has a longer chain, and tiles cut for
less shared memory multiply more slowly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.bench import FULL, PROMPT_TOKENS
from benchmarks.gpu.speech import first_tokens
from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.config import UNetConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.vocoder.hift import HiFT

MEASURED = Path(__file__).parents[1] / "history" / "2026-11-19T0842-nvidia-h200-cosyvoice2.json"
TYPE_BYTES = 2


@dataclass(frozen=True)
class Card:
    """By its datasheet."""

    name: str
    gb_per_s: float
    tflop_per_s: float  # dense, bfloat16 summed up in float32


H200 = Card("H200", 4800, 989)
CARDS = (
    Card("L4", 300, 121),
    Card("A10", 600, 125),
    Card("L20", 864, 119.5),
    Card("L40S", 864, 362),
    Card("RTX 4090", 1008, 165),
    Card("RTX 5090", 1792, 209.5),
    Card("A100 80GB", 2039, 312),
    Card("H100 SXM", 3350, 989),
    H200,
)


@dataclass(frozen=True)
class Work:
    """What one call reads and multiplies."""

    gigabytes: float
    teraflops: float

    def ms(self, gb_per_s: float, tflop_per_s: float) -> float:
        return 1e3 * (self.gigabytes / gb_per_s + self.teraflops / tflop_per_s)


@dataclass(frozen=True)
class Measured:
    """What the H200 did."""

    ms: float
    copy_gb_per_s: float
    product_tflop_per_s: float

    def on(self, card: Card, work: Work) -> float:
        """Milliseconds on another card, by the shares of its datasheet that the H200 reached."""
        chain = self.ms - work.ms(self.copy_gb_per_s, self.product_tflop_per_s)
        return chain + work.ms(
            card.gb_per_s * self.copy_gb_per_s / H200.gb_per_s,
            card.tflop_per_s * self.product_tflop_per_s / H200.tflop_per_s,
        )


def lm_step(report: dict[str, Any]) -> Work:
    """A token of one row: every weight once."""
    gigabytes = report["beside"]["roofline"]["lm_weights_gb"]
    return Work(gigabytes, 1e-3 * gigabytes)  # two operations for each two bytes


def first_chunk() -> Work:
    """CosyVoice2's flow and vocoder, for the first chunk behind the benchmark's prompt, of which
    the estimator's keys and values are kept."""
    config = FULL["cosyvoice2"]
    assert config.flow
    assert config.vocoder
    unet = config.flow.estimator
    assert isinstance(unet, UNetConfig)
    with torch.device("meta"), torch.inference_mode():
        flow, vocoder = Flow(config.flow).eval(), HiFT(config.vocoder).eval()
        first = first_tokens(config.flow)
        tokens, frames = first - flow.lookahead, FRAMES_PER_TOKEN * (first - flow.lookahead)
        known = (PROMPT_TOKENS - flow.lookahead) // flow.grid * flow.grid
        past, own = (FRAMES_PER_TOKEN * n for n in (known, PROMPT_TOKENS + tokens - known))
        rows = 2  # one more for guidance
        mel = torch.empty(rows, config.flow.mel, own)
        with FlopCounterMode(display=False) as steps:
            mask = torch.zeros(rows, 1, own, own)
            flow.estimator(mel, mel, mel[:, :, 0], mel, torch.empty(rows), mask)
        with FlopCounterMode(display=False) as rest:
            given = torch.empty(1, PROMPT_TOKENS + first, flow.encoder.config.size)
            lengths = torch.tensor([PROMPT_TOKENS + first])
            inside = torch.ones(1, PROMPT_TOKENS + tokens, dtype=torch.bool)
            flow.encoder(given, lengths, inside, PROMPT_TOKENS + tokens, True)
            source = torch.empty(1, frames * vocoder.frame)
            vocoder(torch.empty(1, config.flow.mel, frames), source)
    layers = unet.blocks * (unet.mid + 2)
    kept = past * rows * layers * 2 * unet.heads * unet.head_dim  # keys and values of a step
    estimator = sum(p.numel() for p in flow.estimator.parameters())
    others = sum(p.numel() for part in (flow.encoder, vocoder) for p in part.parameters())
    read = config.flow.steps * (estimator + kept) + others
    flops = config.flow.steps * (steps.get_total_flops() + 2 * own * kept)
    return Work(1e-9 * TYPE_BYTES * read, 1e-12 * (flops + rest.get_total_flops()))


def table(report: dict[str, Any]) -> Iterator[str]:
    """Lines for docs/performance.md."""
    roofline = report["beside"]["roofline"]
    rates = roofline["copy_gb_per_s"], roofline["product_tflop_per_s"]
    works = (
        (Measured(report["lm_step_ms"]["1"], *rates), lm_step(report)),
        (Measured(report["first_chunk_token2wav_ms"], *rates), first_chunk()),
    )
    yield "| GPU | GB/s | TFLOP/s | LM, a step of one row | flow and vocoder of a first chunk |"
    yield "|---|---|---|---|---|"
    for card in CARDS:
        step, chunk = (measured.on(card, work) for measured, work in works)
        given = f"{card.gb_per_s:,} | {card.tflop_per_s:g}"
        yield f"| {card.name} | {given} | {step:.2f} ms | {chunk:.0f} ms |"


if __name__ == "__main__":
    report = json.loads(MEASURED.read_text("utf-8"))
    sys.stdout.write("\n".join((*table(report), "")))
