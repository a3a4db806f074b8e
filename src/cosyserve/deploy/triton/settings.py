"""Every setting of a Triton repository, typed, with its bounds and what it is for.

Names are those of the original's templates where it has the setting.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from cosyserve.choices import (
    LLM_SAMPLING,
    MAX_WAITING,
    VOICE_CACHE_BYTES,
    FlowBackend,
    KernelChoice,
    PromptForm,
    known_device,
    known_devices,
)
from cosyserve.deploy.key_values import Bool, Int, KeyValues
from cosyserve.errors import InputError
from cosyserve.settings import Temperature

ID_LISTS = re.compile(r"\d+(,\d+)*(;\d+(,\d+)*)*")
SAMPLING = {f"llm_{field.name}" for field in fields(LLM_SAMPLING)}
SERVER = {f"llm_{name}" for name in ("model", "prompt", "api_key")} | {
    f"llm_{name}_seconds" for name in ("connect", "first", "between")
}


class TritonSettings(KeyValues):
    model_dir: str = ""
    """The model's folder as the server sees it; with --model, that one is read here."""
    voices: str = ""
    """Folder or Redis URL of voices; empty: where `cosyserve` keeps them."""
    default_voice: str = ""
    """The voice of requests that bring none; empty: the model's own (001 of a spk2info.pt)."""
    triton_backend: Literal["python", "tensorrtllm"] = "python"
    """Of tensorrt_llm: ours, or Triton's own, which needs an engine."""
    role: Literal["all", "lm", "token2wav"] = "all"
    """Which models the repository has: all, tensorrt_llm alone, or all but that."""
    grpc: str = "localhost:8001"
    """The gRPC side of tensorrt_llm's server; of its own, `cosyserve deploy start` knows better."""
    decoupled_mode: Bool = True
    """Whether the main model streams; its alias does the other."""
    triton_max_batch_size: Int = Field(default=16, ge=1, le=1024)
    """Requests per batch."""
    max_queue_delay_microseconds: Int = Field(default=0, ge=0)
    """How long a batch may wait to grow."""
    max_queue_size: Int = Field(default=64, ge=0)
    """Requests that may wait per model; 0: any number."""
    queue_timeout_microseconds: Int = Field(default=30_000_000, ge=0)
    """How long a request may wait in a model's queue; 0: any time."""
    priority_levels: Int = Field(default=10, ge=1, le=100)
    """Levels of token2wav's queue; 1 goes first."""
    bls_instance_num: Int = Field(default=1, ge=1)
    """Processes of the speech model; each serves many requests."""
    max_requests: Int = Field(default=128, ge=1, le=4096)
    """Requests that a model answers at once."""
    max_text_characters: Int = Field(default=20_000, ge=1)
    """Characters of a request's text."""
    slots: Int = Field(default=8, ge=1, le=1024)
    """Requests that the speech LM computes at once."""
    waiting: Int = Field(default=MAX_WAITING, ge=0)
    """Requests that may wait for the speech LM."""
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """Where models compute: auto, cpu, cuda or cuda:N."""
    token2wav_device: Annotated[str, AfterValidator(known_devices)] = ""
    """Where flow, vocoder and speaker encoder compute; empty: as the others."""
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto"
    """Precision of LM and flow."""
    flow_backend: FlowBackend = "ours"
    """Runtime of flow and speaker encoder: ours, tensorrt (on a GPU) or onnxruntime (on a CPU)."""
    flow_engines: str = ""
    """Folder of what other runtimes of the flow have built; empty: where `cosyserve` keeps it."""
    kernels: KernelChoice = "auto"
    """Our own kernels on a GPU: auto, small (tiles for less shared memory than Hopper's) or off."""
    threads: Int = Field(default=1, ge=0, le=1024)
    """CPU threads of each process; 0: as many as torch likes."""
    stream_seconds: float = Field(default=60.0, ge=1)
    """How long a stream without requests is kept."""
    voice_cache_bytes: Int = Field(default=VOICE_CACHE_BYTES, ge=0)
    """Voices of recordings that each process remembers."""
    llm_url: str = ""
    """URL of an OpenAI-style LLM server in place of tensorrt_llm."""
    llm_model: str = "cosyvoice2_llm"
    """The name that the LLM server has for the LM."""
    llm_prompt: PromptForm = "ids"
    """The form of the LLM server's prompts."""
    llm_api_key: str = Field(default="", repr=False)
    """The LLM server's key; it is kept in a file of its own, which only its owner can read."""
    llm_connect_seconds: float = Field(default=2.0, ge=0.01)
    """How long the LLM server may take to be connected."""
    llm_first_seconds: float = Field(default=10.0, ge=0.01)
    """How long the LLM server may take to its first token."""
    llm_between_seconds: float = Field(default=5.0, ge=0.01)
    """How long the LLM server may take from one token to the next."""
    llm_temperature: Temperature = LLM_SAMPLING.temperature
    """Sampling of an LLM server or TensorRT-LLM: temperature, unless a request has its own."""
    llm_top_p: float = Field(default=LLM_SAMPLING.top_p, ge=0.01, le=1)
    """Sampling of an LLM server or TensorRT-LLM, unless a request has its own."""
    llm_top_k: Int = Field(default=LLM_SAMPLING.top_k, ge=1)
    """Sampling of an LLM server or TensorRT-LLM, unless a request has its own."""
    llm_repetition_penalty: float = Field(default=LLM_SAMPLING.repetition_penalty, ge=0.01)
    """Sampling of an LLM server or TensorRT-LLM: penalty on what was drawn before; 1: none."""
    llm_max_tokens: Int = Field(default=LLM_SAMPLING.max_tokens, ge=1)
    """Sampling of an LLM server or TensorRT-LLM: speech tokens of an utterance."""
    engine_dir: str = ""
    """TensorRT-LLM: folder of the engine."""
    max_beam_width: Int = Field(default=1, ge=1)
    """TensorRT-LLM: beams of a request."""
    max_tokens_in_paged_kv_cache: Int = Field(default=0, ge=0)
    """TensorRT-LLM: tokens in the cache; 0: all that fit."""
    max_attention_window_size: Int = Field(default=0, ge=0)
    """TensorRT-LLM: tokens that attention sees; 0: the engine's own."""
    kv_cache_free_gpu_mem_fraction: float = Field(default=0.5, ge=0.01, le=1)
    """TensorRT-LLM: share of the free GPU memory for the cache."""
    exclude_input_in_output: Bool = True
    """TensorRT-LLM: whether answers leave the prompt out."""
    enable_kv_cache_reuse: Bool = False
    """TensorRT-LLM: whether requests share the cache of equal prompts."""
    batching_strategy: Literal["inflight_fused_batching", "inflight_batching", "V1"] = (
        "inflight_fused_batching"
    )
    """TensorRT-LLM: how requests are batched."""
    encoder_input_features_data_type: Literal["TYPE_FP16", "TYPE_FP32", "TYPE_BF16"] = "TYPE_FP16"
    """TensorRT-LLM: type of an encoder's input."""
    logits_datatype: Literal["TYPE_FP32", "TYPE_FP16", "TYPE_BF16"] = "TYPE_FP32"
    """TensorRT-LLM: type of the logits."""
    gpu_device_ids: str = ""
    """TensorRT-LLM: GPUs of the engine, 0,1; of two instances 0,1;2,3; empty: the first."""
    participant_ids: str = ""
    """TensorRT-LLM: MPI ranks of the engine, written like gpu_device_ids; empty: all."""
    batch_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] = (
        "guaranteed_no_evict"
    )
    """TensorRT-LLM: whether a request that runs may have to wait again."""
    decoding_mode: Literal["auto", "top_k", "top_p", "top_k_top_p", "beam_search"] = "auto"
    """TensorRT-LLM: how tokens are drawn; auto: top_k_top_p."""
    enable_chunked_context: Bool = False
    """TensorRT-LLM: whether long prompts are computed in pieces."""
    kv_cache_host_memory_bytes: Int = Field(default=0, ge=0)
    """TensorRT-LLM: memory of the host for blocks of the cache that don't fit."""
    cuda_graph_mode: Bool = False
    """TensorRT-LLM: whether steps are captured as CUDA graphs."""

    @model_validator(mode="after")
    def _check_lm(self) -> TritonSettings:
        if self.triton_backend == "tensorrtllm" and not self.engine_dir:
            raise InputError("triton_backend=tensorrtllm needs engine_dir=FOLDER_OF_THE_ENGINE")
        if self.triton_backend == "tensorrtllm" and self.llm_url:
            raise InputError("choose one LM: triton_backend=tensorrtllm or llm_url")
        if self.role == "lm" and self.llm_url:
            raise InputError("role=lm is a server for the LM: leave out llm_url")
        if (given := SERVER & self.model_fields_set) and not self.llm_url:
            raise InputError(f"{min(given)} is for an LLM server: set llm_url")
        ours = self.triton_backend == "python" and not self.llm_url
        if (given := SAMPLING & self.model_fields_set) and ours:
            raise InputError(
                f"{min(given)} is for llm_url or triton_backend=tensorrtllm: our own LM has "
                "repetition-aware sampling instead"
            )
        return self

    @model_validator(mode="after")
    def _check_ids(self) -> TritonSettings:
        for key in ("gpu_device_ids", "participant_ids"):
            if (ids := getattr(self, key)) and not ID_LISTS.fullmatch(ids):
                raise InputError(
                    f"{key} must be whole numbers like 0,1 or 0,1;2,3, got {ids!r:.40}"
                )
        return self
