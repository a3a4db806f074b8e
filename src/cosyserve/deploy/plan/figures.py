"""What was measured: so many listeners at once, and how soon they hear something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cosyserve.deploy.stages.deployment import LLM, Flow

HISTORY = "benchmarks/history"
RUN = f"{HISTORY}/2026-11-19T0842-nvidia-h200-cosyvoice2.json"
FEW = f"{RUN} (random weights, in process, throughput)"
CROWD = f"{RUN} (random weights, over HTTP, throughput)"
DIT_FEW = f"{HISTORY}/2026-11-17T1243-nvidia-h200-dit.json (random weights, in process, throughput)"
DIT_CROWD = (
    f"{HISTORY}/2026-11-17T1833-nvidia-h200-dit.json (random weights, over HTTP, throughput)"
)
UNET = "published by the original's authors (Triton, TensorRT-LLM, recordings sent each time)"
DIT = "published by the original's authors (Triton, trtllm-serve, Step-Audio2's DiT)"


@dataclass(frozen=True)
class Layout:
    """How LM and token2wav share GPUs: on each all of it, or the LM on GPUs of its own."""

    llm_gpus: int
    token2wav_gpus: int
    instances_per_gpu: int = 1

    @property
    def gpus(self) -> int:
        return self.llm_gpus + self.token2wav_gpus

    @property
    def apart(self) -> bool:
        return self.llm_gpus > 0

    def __str__(self) -> str:
        if not self.apart:
            return "LM and token2wav on one GPU"
        return (
            f"LM on {self.llm_gpus} GPU, token2wav on {self.token2wav_gpus} others with "
            f"{self.instances_per_gpu} servers each"
        )


TOGETHER = Layout(0, 1)
SPREAD = Layout(1, 4, 2)


@dataclass(frozen=True)
class Figure:
    """`streams` at once on one set of the layout's GPUs hear their first audio after so long."""

    gpu: str
    flow: Flow
    llm: LLM
    layout: Layout
    streams: int
    first_audio_ms: float
    statistic: Literal["p95", "mean"]
    source: str

    @property
    def tasks_per_gpu(self) -> float:
        """The original's `concurrent_task_per_gpu`: streams, by all GPUs that they take."""
        return self.streams / self.layout.gpus


FIGURES = (
    Figure("h200", "unet", "ours", TOGETHER, 32, 25, "p95", FEW),
    Figure("h200", "unet", "ours", TOGETHER, 100, 66, "p95", CROWD),
    Figure("h200", "unet", "ours", TOGETHER, 200, 98, "p95", CROWD),
    Figure("h200", "unet", "ours", TOGETHER, 260, 130, "p95", CROWD),
    Figure("h200", "unet", "ours", TOGETHER, 320, 173, "p95", CROWD),
    Figure("h200", "unet", "ours", TOGETHER, 400, 238, "p95", CROWD),
    Figure("h200", "dit", "ours", TOGETHER, 32, 33, "p95", DIT_FEW),
    Figure("h200", "dit", "ours", TOGETHER, 100, 60, "p95", DIT_CROWD),
    Figure("h200", "dit", "ours", TOGETHER, 200, 76, "p95", DIT_CROWD),
    Figure("l20", "unet", "trtllm", TOGETHER, 1, 220, "mean", UNET),
    Figure("l20", "unet", "trtllm", TOGETHER, 2, 477, "mean", UNET),
    Figure("l20", "unet", "trtllm", TOGETHER, 4, 1107, "mean", UNET),
    Figure("l20", "dit", "trtllm", TOGETHER, 1, 197.5, "mean", DIT),
    Figure("l20", "dit", "trtllm", TOGETHER, 4, 511, "mean", DIT),
    Figure("l20", "dit", "trtllm", TOGETHER, 10, 1215, "mean", DIT),
    Figure("l20", "dit", "trtllm", SPREAD, 8, 204, "mean", DIT),
    Figure("l20", "dit", "trtllm", SPREAD, 48, 858, "mean", DIT),
)
