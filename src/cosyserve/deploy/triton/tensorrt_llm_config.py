"""Tensors and parameters of Triton's TensorRT-LLM backend, all that the original's repository has.

A parameter that is empty has the backend's own default; one that is missing may stop it.
"""

from __future__ import annotations

from typing import NamedTuple

from cosyserve.deploy.triton.settings import TritonSettings


class Tensor(NamedTuple):
    """A tensor without its batch dimension."""

    name: str
    kind: str
    dims: tuple[int, ...]
    scalar: bool = False  # the backend sees it without its one dimension
    ragged: bool = False  # rows of a batch may have different lengths
    optional: bool = True


def _scalars(kind: str, names: str, optional: bool = True) -> list[Tensor]:
    return [Tensor(name, kind, (1,), scalar=True, optional=optional) for name in names.split()]


def _ragged(kind: str, dims: tuple[int, ...], names: str) -> list[Tensor]:
    return [Tensor(name, kind, dims, ragged=True) for name in names.split()]


def inputs(settings: TritonSettings) -> list[Tensor]:
    return [
        *_ragged("INT32", (-1,), "input_ids draft_input_ids decoder_input_ids"),
        *_scalars("INT32", "input_lengths request_output_len", optional=False),
        *_scalars(
            "INT32",
            "encoder_output_lengths num_return_sequences decoder_input_lengths end_id pad_id"
            " beam_width runtime_top_k runtime_top_p_reset_ids min_length prompt_vocab_size",
        ),
        *_scalars(
            "FP32",
            "draft_acceptance_threshold temperature runtime_top_p runtime_top_p_min"
            " runtime_top_p_decay len_penalty repetition_penalty beam_search_diversity_rate"
            " presence_penalty frequency_penalty",
        ),
        *_scalars(
            "BOOL",
            "early_stopping return_log_probs return_context_logits return_generation_logits"
            " return_perf_metrics exclude_input_in_output stop streaming",
        ),
        *_scalars("UINT64", "random_seed lora_task_id"),
        *_ragged("INT32", (2, -1), "stop_words_list bad_words_list"),
        *_ragged("FP32", (-1,), "embedding_bias"),
        *_ragged(
            _type(settings.encoder_input_features_data_type), (-1, -1), "encoder_input_features"
        ),
        *_ragged(_type(settings.logits_datatype), (-1, -1), "draft_logits"),
        *_ragged("FP16", (-1, -1), "prompt_embedding_table lora_weights"),
        *_ragged("UINT64", (-1,), "prompt_table_extra_ids"),
        *_ragged("BOOL", (-1, -1), "cross_attention_mask"),
        *_ragged("BOOL", (1,), "skip_cross_attn_blocks"),
        *_ragged("INT32", (-1, 3), "lora_config"),
        *_ragged("UINT8", (-1,), "context_phase_params"),
        Tensor("mrope_rotary_cos_sin", "FP32", (-1,)),
        Tensor("mrope_position_deltas", "INT64", (1,)),
        *_ragged(
            "INT32",
            (-1,),
            "retention_token_range_starts retention_token_range_ends"
            " retention_token_range_priorities retention_token_range_durations_ms",
        ),
        *_ragged(
            "INT32",
            (1,),
            "retention_decode_priority retention_decode_duration_ms lookahead_window_size"
            " lookahead_ngram_size lookahead_verification_set_size",
        ),
        *_ragged("STRING", (1,), "guided_decoding_guide_type guided_decoding_guide"),
        *RENAMED,
    ]


# What later versions of the backend call min_length and random_seed.
RENAMED = [*_scalars("INT32", "min_tokens"), *_scalars("UINT64", "seed")]


def outputs(settings: TritonSettings) -> list[Tensor]:
    logits = _type(settings.logits_datatype)
    ones = {
        "INT32": "batch_index sequence_index kv_cache_alloc_new_blocks kv_cache_reused_blocks"
        " kv_cache_alloc_total_blocks total_accepted_draft_tokens total_draft_tokens",
        "INT64": "arrival_time_ns first_scheduled_time_ns first_token_time_ns last_token_time_ns",
        "FP32": "acceptance_rate",
    }
    return [
        Tensor("output_ids", "INT32", (-1, -1)),  # clients of the original take the first
        Tensor("sequence_length", "INT32", (-1,)),
        Tensor("cum_log_probs", "FP32", (-1,)),
        Tensor("output_log_probs", "FP32", (-1, -1)),
        Tensor("context_logits", logits, (-1, -1)),
        Tensor("generation_logits", logits, (-1, -1, -1)),
        Tensor("context_phase_params", "UINT8", (-1,)),
        *(Tensor(name, kind, (1,)) for kind, names in ones.items() for name in names.split()),
    ]


DEFAULTED = (
    "encoder_model_path",
    "sink_token_length",
    "cross_kv_cache_fraction",
    "kv_cache_onboard_blocks",
    "cancellation_check_period_ms",
    "stats_check_period_ms",
    "iter_stats_max_iterations",
    "request_stats_max_iterations",
    "normalize_log_probs",
    "lora_cache_optimal_adapter_size",
    "lora_cache_max_adapter_size",
    "lora_cache_gpu_memory_fraction",
    "lora_cache_host_memory_bytes",
    "lora_prefetch_dir",
    "lookahead_window_size",
    "lookahead_ngram_size",
    "lookahead_verification_set_size",
    "medusa_choices",
    "eagle_choices",
    "gpu_weights_percent",
    "enable_context_fmha_fp32_acc",
    "multi_block_mode",
    "cuda_graph_cache_size",
    "speculative_decoding_fast_logits",
    "tokenizer_dir",
    "guided_decoding_backend",
    "xgrammar_tokenizer_info_path",
)


def parameters(settings: TritonSettings) -> dict[str, str]:
    values = {
        "max_beam_width": settings.max_beam_width,
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "gpt_model_type": settings.batching_strategy,
        "gpt_model_path": settings.engine_dir,
        "max_tokens_in_paged_kv_cache": settings.max_tokens_in_paged_kv_cache or "",
        "max_attention_window_size": settings.max_attention_window_size or "",
        "batch_scheduler_policy": settings.batch_scheduler_policy,
        "kv_cache_free_gpu_mem_fraction": settings.kv_cache_free_gpu_mem_fraction,
        "kv_cache_host_memory_bytes": settings.kv_cache_host_memory_bytes or "",
        "exclude_input_in_output": settings.exclude_input_in_output,
        "enable_kv_cache_reuse": settings.enable_kv_cache_reuse,
        "enable_chunked_context": settings.enable_chunked_context,
        "gpu_device_ids": settings.gpu_device_ids,
        "participant_ids": settings.participant_ids,
        "decoding_mode": settings.decoding_mode.replace("auto", ""),
        "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        "cuda_graph_mode": settings.cuda_graph_mode,
    }
    return dict.fromkeys(DEFAULTED, "") | {key: str(value) for key, value in values.items()}


def _type(data_type: str) -> str:
    return data_type.removeprefix("TYPE_")
