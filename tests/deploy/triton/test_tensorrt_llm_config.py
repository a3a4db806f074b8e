"""The model of the TensorRT-LLM backend has every tensor and parameter that the original's has."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.deploy.triton.models import models
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError

# name, type, dimensions, and what else is true of it
INPUTS = """
input_ids INT32 -1 ragged optional
encoder_input_features FP16 -1,-1 ragged optional
encoder_output_lengths INT32 1 scalar optional
input_lengths INT32 1 scalar
request_output_len INT32 1 scalar
num_return_sequences INT32 1 scalar optional
draft_input_ids INT32 -1 ragged optional
decoder_input_ids INT32 -1 ragged optional
decoder_input_lengths INT32 1 scalar optional
draft_logits FP32 -1,-1 ragged optional
draft_acceptance_threshold FP32 1 scalar optional
end_id INT32 1 scalar optional
pad_id INT32 1 scalar optional
stop_words_list INT32 2,-1 ragged optional
bad_words_list INT32 2,-1 ragged optional
embedding_bias FP32 -1 ragged optional
beam_width INT32 1 scalar optional
temperature FP32 1 scalar optional
runtime_top_k INT32 1 scalar optional
runtime_top_p FP32 1 scalar optional
runtime_top_p_min FP32 1 scalar optional
runtime_top_p_decay FP32 1 scalar optional
runtime_top_p_reset_ids INT32 1 scalar optional
len_penalty FP32 1 scalar optional
early_stopping BOOL 1 scalar optional
repetition_penalty FP32 1 scalar optional
min_length INT32 1 scalar optional
beam_search_diversity_rate FP32 1 scalar optional
presence_penalty FP32 1 scalar optional
frequency_penalty FP32 1 scalar optional
random_seed UINT64 1 scalar optional
return_log_probs BOOL 1 scalar optional
return_context_logits BOOL 1 scalar optional
return_generation_logits BOOL 1 scalar optional
return_perf_metrics BOOL 1 scalar optional
exclude_input_in_output BOOL 1 scalar optional
stop BOOL 1 scalar optional
streaming BOOL 1 scalar optional
prompt_embedding_table FP16 -1,-1 ragged optional
prompt_table_extra_ids UINT64 -1 ragged optional
prompt_vocab_size INT32 1 scalar optional
cross_attention_mask BOOL -1,-1 ragged optional
mrope_rotary_cos_sin FP32 -1 optional
mrope_position_deltas INT64 1 optional
lora_task_id UINT64 1 scalar optional
lora_weights FP16 -1,-1 ragged optional
lora_config INT32 -1,3 ragged optional
context_phase_params UINT8 -1 ragged optional
skip_cross_attn_blocks BOOL 1 ragged optional
retention_token_range_starts INT32 -1 ragged optional
retention_token_range_ends INT32 -1 ragged optional
retention_token_range_priorities INT32 -1 ragged optional
retention_token_range_durations_ms INT32 -1 ragged optional
retention_decode_priority INT32 1 ragged optional
retention_decode_duration_ms INT32 1 ragged optional
guided_decoding_guide_type STRING 1 ragged optional
guided_decoding_guide STRING 1 ragged optional
lookahead_window_size INT32 1 ragged optional
lookahead_ngram_size INT32 1 ragged optional
lookahead_verification_set_size INT32 1 ragged optional
"""
LATER_INPUTS = """
min_tokens INT32 1 scalar optional
seed UINT64 1 scalar optional
"""
OUTPUTS = """
output_ids INT32 -1,-1
sequence_length INT32 -1
cum_log_probs FP32 -1
output_log_probs FP32 -1,-1
context_logits FP32 -1,-1
generation_logits FP32 -1,-1,-1
batch_index INT32 1
sequence_index INT32 1
context_phase_params UINT8 -1
kv_cache_alloc_new_blocks INT32 1
kv_cache_reused_blocks INT32 1
kv_cache_alloc_total_blocks INT32 1
arrival_time_ns INT64 1
first_scheduled_time_ns INT64 1
first_token_time_ns INT64 1
last_token_time_ns INT64 1
acceptance_rate FP32 1
total_accepted_draft_tokens INT32 1
total_draft_tokens INT32 1
"""
PARAMETERS = """
max_beam_width FORCE_CPU_ONLY_INPUT_TENSORS gpt_model_type gpt_model_path encoder_model_path
max_tokens_in_paged_kv_cache max_attention_window_size sink_token_length batch_scheduler_policy
kv_cache_free_gpu_mem_fraction cross_kv_cache_fraction kv_cache_host_memory_bytes
kv_cache_onboard_blocks exclude_input_in_output cancellation_check_period_ms stats_check_period_ms
iter_stats_max_iterations request_stats_max_iterations enable_kv_cache_reuse normalize_log_probs
enable_chunked_context gpu_device_ids participant_ids lora_cache_optimal_adapter_size
lora_cache_max_adapter_size lora_cache_gpu_memory_fraction lora_cache_host_memory_bytes
lora_prefetch_dir decoding_mode executor_worker_path lookahead_window_size lookahead_ngram_size
lookahead_verification_set_size medusa_choices eagle_choices gpu_weights_percent
enable_context_fmha_fp32_acc multi_block_mode cuda_graph_mode cuda_graph_cache_size
speculative_decoding_fast_logits tokenizer_dir guided_decoding_backend
xgrammar_tokenizer_info_path
"""


def rendered(*pairs: str) -> pb.ModelConfig:
    settings = TritonSettings.of(["triton_backend=tensorrtllm", "engine_dir=/engine", *pairs])
    return models(settings, "cosyvoice2")["tensorrt_llm"]


def parameters(model: pb.ModelConfig) -> dict[str, str]:
    return {key: value.string_value for key, value in model.parameters.items()}


def described(tensor: Any) -> str:
    """A tensor as the lists above write it."""
    kind = pb.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    words = [tensor.name, kind, ",".join(map(str, tensor.dims))]
    if tensor.HasField("reshape"):
        assert list(tensor.reshape.shape) == []
        words.append("scalar")
    if getattr(tensor, "allow_ragged_batch", False):
        words.append("ragged")
    if getattr(tensor, "optional", False):
        words.append("optional")
    return " ".join(words)


def lines(text: str) -> list[str]:
    return sorted(text.strip().splitlines())


def test_tensors_are_the_originals() -> None:
    model = rendered()
    assert (len(lines(INPUTS)), len(lines(OUTPUTS))) == (60, 19)
    assert sorted(map(described, model.input)) == sorted(lines(INPUTS) + lines(LATER_INPUTS))
    assert sorted(map(described, model.output)) == lines(OUTPUTS)
    assert model.output[0].name == "output_ids"  # clients take the first


def test_types_follow_the_engine() -> None:
    model = rendered("logits_datatype=TYPE_BF16", "encoder_input_features_data_type=TYPE_FP32")
    kinds = {t.name: pb.DataType.Name(t.data_type) for t in (*model.input, *model.output)}
    for name in ("draft_logits", "context_logits", "generation_logits"):
        assert kinds[name] == "TYPE_BF16"
    assert kinds["encoder_input_features"] == "TYPE_FP32"


def test_parameters_are_the_originals() -> None:
    values = parameters(rendered())
    assert len(PARAMETERS.split()) == 44  # a 45th is commented out there
    assert sorted(values) == sorted(PARAMETERS.split())
    assert not any("$" in value or value == "None" for value in values.values())
    assert {key: value for key, value in values.items() if value} == {
        "max_beam_width": "1",
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/engine",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "exclude_input_in_output": "True",
        "enable_kv_cache_reuse": "False",
        "enable_chunked_context": "False",
        "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        "cuda_graph_mode": "False",
    }


def test_settings_arrive() -> None:
    pairs = {
        "max_beam_width": "2",
        "max_tokens_in_paged_kv_cache": "2560",
        "max_attention_window_size": "1280",
        "kv_cache_free_gpu_mem_fraction": "0.7",
        "kv_cache_host_memory_bytes": "1024",
        "exclude_input_in_output": "False",
        "enable_kv_cache_reuse": "True",
        "enable_chunked_context": "True",
        "gpu_device_ids": "0,1;2,3",
        "participant_ids": "1,2;3,4",
        "batch_scheduler_policy": "max_utilization",
        "decoding_mode": "top_k",
        "cuda_graph_mode": "True",
    }
    model = rendered(*(f"{key}={value}" for key, value in pairs.items()))
    assert parameters(model).items() >= pairs.items()
    assert model.instance_group[0].count == 2  # one for each group of GPUs
    assert parameters(rendered("batching_strategy=V1"))["gpt_model_type"] == "V1"


def test_the_whole_batch_is_preferred() -> None:
    model = rendered("triton_max_batch_size=8")
    assert list(model.dynamic_batching.preferred_batch_size) == [8]
    assert model.model_transaction_policy.decoupled


@pytest.mark.parametrize("key", ["gpu_device_ids", "participant_ids"])
@pytest.mark.parametrize("value", ["0,", "a", "0 1", ";0", "-1"])
def test_ids_are_lists_of_numbers(key: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{key} must be whole numbers like 0,1 or 0,1;2,3"):
        rendered(f"{key}={value}")
