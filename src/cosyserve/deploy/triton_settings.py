"""Every knob of a Triton repository, typed, with its bounds. Knows no file.

Names are those of the original's templates where it has the knob.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cosyserve.errors import InputError


def _knob(default: Any, about: str, *, least: float = -math.inf, most: float = math.inf) -> Any:
    return field(default=default, metadata={"about": about, "least": least, "most": most})


@dataclass(frozen=True)
class TritonSettings:
    model_dir: str = _knob("", "the model's folder, as the server sees it")
    llm_tokenizer_dir: str = _knob("", "folder with another tokenizer.json; empty: model_dir")
    voices: str = _knob("", "folder or Redis URL of voices; empty: where `cosyserve` keeps them")
    triton_backend: Literal["python", "tensorrtllm"] = _knob(
        "python", "of tensorrt_llm: ours, or Triton's own, which needs an engine"
    )
    grpc: str = _knob("localhost:8001", "the server's gRPC side, as the server itself sees it")
    decoupled_mode: bool = _knob(True, "whether the main model streams; its alias does the other")
    triton_max_batch_size: int = _knob(16, "requests per batch", least=1, most=1024)
    max_queue_delay_microseconds: int = _knob(0, "how long a batch may wait to grow", least=0)
    max_queue_size: int = _knob(64, "requests that may wait per model; 0: any number", least=0)
    queue_timeout_microseconds: int = _knob(
        30_000_000, "how long a request may wait in a model's queue; 0: any time", least=0
    )
    priority_levels: int = _knob(10, "of token2wav's queue; 1 goes first", least=1, most=100)
    bls_instance_num: int = _knob(1, "processes that join the models; each serves many", least=1)
    max_requests: int = _knob(128, "requests that a model answers at once", least=1, most=4096)
    max_text_characters: int = _knob(20_000, "of one request's text", least=1)
    slots: int = _knob(8, "requests that the speech LM computes at once", least=1, most=1024)
    waiting: int = _knob(64, "requests that may wait for the speech LM", least=0)
    device: str = _knob("auto", "auto, cpu, cuda or cuda:N")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _knob("auto", "of LM and flow")
    threads: int = _knob(1, "CPU threads of each process; 0: as many as torch likes", least=0)
    stream_seconds: float = _knob(60.0, "how long a stream without requests is kept", least=1.0)
    voice_cache_bytes: int = _knob(64 << 20, "voices of recordings that are remembered", least=0)
    llm_url: str = _knob("", "an OpenAI-style LLM server to be asked instead of tensorrt_llm")
    llm_model: str = _knob("cosyvoice2_llm", "the name that the LLM server knows the LM by")
    llm_prompt: Literal["ids", "text", "chat"] = _knob("ids", "how the LLM server is asked")
    engine_dir: str = _knob("", "TensorRT-LLM: folder of the engine")
    max_beam_width: int = _knob(1, "TensorRT-LLM", least=1)
    max_tokens_in_paged_kv_cache: int = _knob(0, "TensorRT-LLM; 0: all that fit", least=0)
    max_attention_window_size: int = _knob(0, "TensorRT-LLM; 0: the engine's own", least=0)
    kv_cache_free_gpu_mem_fraction: float = _knob(0.5, "TensorRT-LLM", least=0.01, most=1.0)
    exclude_input_in_output: bool = _knob(True, "TensorRT-LLM")
    enable_kv_cache_reuse: bool = _knob(False, "TensorRT-LLM")
    batching_strategy: Literal["inflight_fused_batching", "inflight_batching", "V1"] = _knob(
        "inflight_fused_batching", "TensorRT-LLM"
    )
    encoder_input_features_data_type: Literal["TYPE_FP16", "TYPE_FP32", "TYPE_BF16"] = _knob(
        "TYPE_FP16", "TensorRT-LLM"
    )
    logits_datatype: Literal["TYPE_FP32", "TYPE_FP16", "TYPE_BF16"] = _knob(
        "TYPE_FP32", "TensorRT-LLM"
    )

    def __post_init__(self) -> None:
        if self.triton_backend == "tensorrtllm" and not self.engine_dir:
            raise InputError("triton_backend=tensorrtllm needs engine_dir=FOLDER_OF_THE_ENGINE")
        if self.triton_backend == "tensorrtllm" and self.llm_url:
            raise InputError("choose one LM: triton_backend=tensorrtllm or llm_url")

    @classmethod
    def of(cls, pairs: Iterable[str], **known: str) -> TritonSettings:
        """From `key=value` texts."""
        values: dict[str, Any] = dict(known)
        hints = get_type_hints(cls)
        knobs = {knob.name: knob.metadata for knob in fields(cls)}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or key not in knobs:
                raise InputError(f"{pair!r:.80}: use key=value with one of {', '.join(knobs)}")
            values[key] = _value(key, value, hints[key], knobs[key])
        return cls(**values)


def _value(key: str, text: str, kind: Any, bounds: Any) -> Any:
    if "$" in text or "\n" in text:
        raise InputError(f"{key}: a value that holds '$' or a new line was not filled in")
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise InputError(f"{key} must be one of {', '.join(get_args(kind))}, got {text!r:.40}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{key} must be true or false, got {text!r:.40}")
        return text.lower() == "true"
    if kind is str:
        return text
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not bounds["least"] <= number <= bounds["most"]:
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(
            f"{key} must be {wanted} of {bounds['least']:g}..{bounds['most']:g}, got {text!r:.40}"
        )
    return number
