"""What Triton's TensorRT-LLM backend can't be loaded without, and what cosyvoice2 can't ask
without.

The backend takes a parameter that it can't read, such as one that was never filled in, for its own
default; but for these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.deploy.triton import tensorrt_llm_config
from cosyserve.deploy.triton.settings import TritonSettings

BACKEND = "tensorrtllm"
GUIDED_DECODING = ("tokenizer_dir", "xgrammar_tokenizer_info_path", "guided_decoding_backend")
NEEDED = ("gpt_model_type", "gpt_model_path", *GUIDED_DECODING)
STRATEGIES = get_args(TritonSettings.model_fields["batching_strategy"].annotation)
# by what any cosyvoice2 sends and reads, and by what ours sends, too
ASKED = {
    *("input_ids", "input_lengths", "request_output_len", "end_id", "pad_id", "streaming"),
    *("runtime_top_k", "runtime_top_p", "temperature", "repetition_penalty"),
    *("output_ids", "sequence_length"),
}
ASKED_BY_OURS = {"min_length", "min_tokens", "random_seed", "seed"}


def problems(
    model: pb.ModelConfig, *, asked_by_ours: bool, cosyvoice3: bool = False
) -> Iterator[str]:
    """What is wrong with the configuration of a model for the backend."""
    values = {key: value.string_value for key, value in model.parameters.items()}
    for key in NEEDED:
        if key not in values:
            hint = ": empty will do" if key in GUIDED_DECODING else ""
            yield f"parameter '{key}' is missing, and the backend can't be loaded without it{hint}"
    if (strategy := values.get("gpt_model_type")) and strategy.lower() not in {
        name.lower() for name in STRATEGIES
    }:
        yield f"gpt_model_type must be one of {', '.join(STRATEGIES)}, got '{strategy}'"
    if (engine := values.get("gpt_model_path")) and not (Path(engine) / "config.json").is_file():
        yield f"gpt_model_path '{engine}' holds no engine (config.json)"
    if asked_by_ours and not model.model_transaction_policy.decoupled:
        yield "it must be decoupled: cosyvoice2 asks it for streams"
    asked, settings = set(ASKED), TritonSettings()
    if asked_by_ours:
        asked |= ASKED_BY_OURS | ({"embedding_bias"} if cosyvoice3 else set())
    given = {tensor.name: tensor for tensor in (*model.input, *model.output)}
    for tensor in (*tensorrt_llm_config.inputs(settings), *tensorrt_llm_config.outputs(settings)):
        if tensor.name not in asked:
            continue
        if tensor.name not in given:
            yield f"tensor '{tensor.name}' is missing"
            continue
        kind, dims = f"TYPE_{tensor.kind}", list(tensor.dims)
        other = given[tensor.name]
        if (pb.DataType.Name(other.data_type), list(other.dims)) != (kind, dims):
            yield f"tensor '{tensor.name}' must be {kind} {dims}"
