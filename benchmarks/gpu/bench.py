"""What the figures of a GPU share: networks with random weights, a voice, a clock, a time limit.

Cost does not depend on what weights hold, so random ones of full size are as good as trained ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from cosyserve.choices import KernelChoice
from cosyserve.contracts import Voice
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    LookaheadConfig,
    ModelConfig,
    RotaryDiTConfig,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.flow.flow import Flow
from cosyserve.models.kernels import use_kernels
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT

PROMPT_TOKENS = 87  # of the voice
PROMPT_POSITIONS = 110  # of the LM: text and the voice's tokens
TOKENS = 250  # of an utterance: 10 s

TINY = {
    "cosyvoice2": ModelConfig(
        lm=LMConfig(64, 96, 2, 4, 2, text_vocab=300, speech_tokens=81),
        flow=FlowConfig(
            EncoderConfig(64, 4, 96, 2, 1),
            UNetConfig("unet", 32, 2, 16, 1, 2),
            speech_tokens=81,
            steps=2,
        ),
        vocoder=VocoderConfig(base=32, f0_channels=32),
    ),
    "cosyvoice3": ModelConfig(
        family="cosyvoice3",
        lm=LMConfig(64, 96, 2, 4, 2, text_vocab=300, speech_tokens=81, kind="cosyvoice3"),
        flow=FlowConfig(
            LookaheadConfig(channels=32),
            RotaryDiTConfig("rotary_dit", 32, 2, 2, 16),
            speech_tokens=81,
            steps=2,
        ),
        vocoder=VocoderConfig(base=32, f0_channels=32, causal=True),
    ),
    "dit": ModelConfig(
        lm=LMConfig(64, 96, 2, 4, 2, text_vocab=300, speech_tokens=60),
        flow=FlowConfig(
            EncoderConfig(64, 4, 96, 2, 1),
            DiTConfig("dit", 32, 2, 2, 16, history=30),
            speech_tokens=60,
            steps=2,
        ),
        vocoder=VocoderConfig(base=32, f0_channels=32),
    ),
}
FULL = {
    "cosyvoice2": ModelConfig(lm=LMConfig(), flow=FlowConfig(), vocoder=VocoderConfig()),
    "cosyvoice3": ModelConfig(
        family="cosyvoice3",
        lm=LMConfig(kind="cosyvoice3"),
        flow=FlowConfig(LookaheadConfig(), RotaryDiTConfig()),
        vocoder=VocoderConfig(causal=True),
    ),
    # CosyVoice2's LM with Step-Audio 2's flow, as in the original's second deployment.
    "dit": ModelConfig(
        lm=LMConfig(), flow=FlowConfig(estimator=DiTConfig()), vocoder=VocoderConfig()
    ),
}
FAMILIES = tuple(FULL)


M = TypeVar("M", bound=torch.nn.Module)


@dataclass(eq=False)
class Bench:
    """`samples` are kept with the figures that come of them."""

    tiny: bool
    deadline: float
    family: str = FAMILIES[0]
    kernels: KernelChoice = "auto"
    samples: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        use_kernels(self.kernels)

    @contextmanager
    def without_kernels(self) -> Iterator[None]:
        """Inside, what is made ready is made of the plain networks."""
        use_kernels("off")
        try:
            yield
        finally:
            use_kernels(self.kernels)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def config(self) -> ModelConfig:
        return (TINY if self.tiny else FULL)[self.family]

    def few(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full

    @property
    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.monotonic()

    @cached_property
    def lm(self) -> SpeechLM:
        assert self.config.lm
        return self._made(lambda: SpeechLM(self.config.lm)).to(self.dtype)  # type: ignore[arg-type]

    @cached_property
    def flow(self) -> Flow:
        return self._made(lambda: Flow(self.config.flow)).to(self.dtype)  # type: ignore[arg-type]

    @cached_property
    def vocoder(self) -> HiFT:
        made = self._made(lambda: HiFT(self.config.vocoder))  # type: ignore[arg-type]
        made.f0_predictor.classifier.bias.fill_(150.0)  # Hz: random weights alone are never voiced
        return made

    @cached_property
    def voice(self) -> Voice:
        return self.random_voice(0)

    def random_voice(self, seed: int, tokens: int = PROMPT_TOKENS) -> Voice:
        random = np.random.default_rng(seed)
        assert self.config.flow
        return Voice(
            "",
            random.integers(0, self.config.flow.speech_tokens, tokens, dtype=np.int32),
            random.standard_normal((2 * tokens, 80), np.float32),
            random.standard_normal(self.config.flow.speaker, np.float32),
            family=self.config.family,
        )

    def random_tokens(self, seed: int, count: int) -> list[int]:
        assert self.config.flow
        random = np.random.default_rng(seed)
        found: list[int] = random.integers(0, self.config.flow.speech_tokens, count).tolist()
        return found

    def _made(self, make: Callable[[], M]) -> M:
        torch.manual_seed(0)
        with torch.device(self.device):
            return make().eval().requires_grad_(False)

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def wall_ms(self, name: str, run: Callable[[], object], repeats: int) -> float:
        """Median of single runs, each waited for."""
        for _ in range(3):
            run()
        times = []
        for _ in range(repeats):
            self.sync()
            begun = time.perf_counter()
            run()
            self.sync()
            times.append(1e3 * (time.perf_counter() - begun))
        self.samples[name] = times
        return statistics.median(times)

    def train_ms(self, name: str, run: Callable[[], object], repeats: int) -> float:
        """Per run of many that are queued one after another; median of five such trains."""
        run()
        times = []
        for _ in range(5):
            self.sync()
            begun = time.perf_counter()
            for _ in range(repeats):
                run()
            self.sync()
            times.append(1e3 * (time.perf_counter() - begun) / repeats)
        self.samples[name] = times
        return statistics.median(times)


def percentile(values: list[float], share: float) -> float:
    return float(np.percentile(values, 100 * share))


R = TypeVar("R")


def finished(launches: Generator[None, None, R]) -> R:
    """What comes of all of them."""
    while True:
        try:
            next(launches)
        except StopIteration as end:
            result: R = end.value
            return result
