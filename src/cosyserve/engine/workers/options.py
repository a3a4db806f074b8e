"""What a worker process is started with."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.backends.llm_server import LLMServer
from cosyserve.choices import (
    LM_FILE,
    MAX_UNREAD_BYTES,
    MAX_WAIT_SECONDS,
    MAX_WAITING,
    VOICE_CACHE_BYTES,
    FlowBackend,
    KernelChoice,
)


@dataclass(frozen=True)
class WorkerOptions:
    model: str
    device: str = "auto"  # of the LM, where token2wav has another
    token2wav_devices: tuple[str, ...] = ()  # empty: the LM's
    dtype: str = "auto"
    lm_file: str = LM_FILE  # in a CosyVoice folder
    flow_backend: FlowBackend = "ours"  # what computes the flow
    flow_engines: str = ""  # the folder of what is built for it
    kernels: KernelChoice = "auto"  # of a GPU
    threads: int = 0  # as many as torch likes and find a core
    profile: str = "latency"
    slots: int = 0  # as many as the profile has, or as fit
    gpu_memory: str = ""  # of each GPU: a share ("0.5") or GiB ("12GiB"); empty: all
    waiting: int = MAX_WAITING
    max_wait: float = MAX_WAIT_SECONDS
    voice_cache_bytes: int = VOICE_CACHE_BYTES
    max_unread_bytes: int = MAX_UNREAD_BYTES  # of a request's audio, on the gateway's side
    llm: LLMServer | None = None  # that draws the speech tokens: then no LM is loaded
