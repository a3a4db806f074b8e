"""What an operator chooses of an engine, wherever it runs: values and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cosyserve.contracts import Sampling
from cosyserve.errors import InputError

LM_FILE = "llm.pt"  # of a CosyVoice folder, unless another is chosen

# Of whatever makes requests wait or keeps voices in memory.
MAX_WAITING = 64  # requests
MAX_WAIT_SECONDS = 1.0
VOICE_CACHE_BYTES = 64 << 20
MAX_UNREAD_BYTES = 64 << 20  # of a request's audio: over eleven minutes

PromptForm = Literal["ids", "text", "chat"]  # of an LLM server
FlowBackend = Literal["ours", "tensorrt", "onnxruntime"]  # what computes the flow
KernelChoice = Literal["auto", "small", "off"]  # of our own kernels on a GPU

DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
GPU_MEMORY = re.compile(r"(?=.*[1-9])(0?\.\d+|1(\.0)?|\d+(\.\d+)?GiB)")  # a share, or GiB


def gpu_budget(memory: str) -> str:
    """What a worker may have of a GPU: a share, GiB, or nothing for all of it."""
    if memory and not GPU_MEMORY.fullmatch(memory):
        raise ValueError("give a share of the GPU (0.5) or GiB (12GiB), and more than 0")
    return memory


def known_device(name: str) -> str:
    """A device that models compute on; torch has others of which they know nothing."""
    if not DEVICE.fullmatch(name):
        raise ValueError(f"unknown device {name!r:.40}: use auto, cpu, cuda or cuda:N")
    return name


def known_devices(names: str) -> str:
    """Such devices, separated by commas, or none."""
    for name in filter(None, map(str.strip, names.split(","))):
        known_device(name)
    return names


@dataclass(frozen=True)
class LLMSampling:
    """How an LLM runtime draws that has no repetition-aware draw; as the original asks it."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 50
    repetition_penalty: float = 1.1
    max_tokens: int = 750  # of an utterance

    def __post_init__(self) -> None:
        self.per_request()  # checks it
        if self.repetition_penalty <= 0 or self.max_tokens < 1:
            raise InputError("an LLM needs a penalty > 0 and max_tokens >= 1")

    def per_request(self) -> Sampling:
        """What of it a request may have its own of."""
        return Sampling(self.top_p, self.top_k, temperature=self.temperature)


LLM_SAMPLING = LLMSampling()
