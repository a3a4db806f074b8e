"""`python -m cosyserve.deploy.engine.convert`: the LM to a checkpoint of TensorRT-LLM.

TensorRT-LLM does the work. Its Qwen has no bias in the head: CosyVoice2's is left out, as in
engines of the original. CosyVoice3's LM has none.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cosyserve.deploy.engine.options import GROUP_SIZE, ConvertOptions
from cosyserve.deploy.engine.source import EngineSource, Quantization


def quant_config(options: ConvertOptions, stored: Quantization | None) -> dict[str, Any]:
    """The arguments of TensorRT-LLM's QuantConfig; algorithms by their names."""
    arguments: dict[str, Any] = {}
    if options.int8_kv_cache:
        arguments["kv_cache_quant_algo"] = "INT8"
    if options.smoothquant is not None:
        by = "PER_CHANNEL" if options.per_channel else "PER_TENSOR"
        if options.per_token:
            by += "_PER_TOKEN"
        elif options.per_channel:
            by += "_PER_TENSOR"
        arguments["quant_algo"] = f"W8A8_SQ_{by}_PLUGIN"
        arguments["smoothquant_val"] = options.smoothquant
    elif options.use_weight_only and options.weight_only_precision == "int4_gptq":
        arguments |= {
            "quant_algo": "W4A16_GPTQ",
            "group_size": options.group_size or GROUP_SIZE,
            "has_zero_point": stored.zero_point if stored else True,
            "pre_quant_scale": False,
        }
    elif options.use_weight_only:
        eight = options.weight_only_precision in (None, "int8")
        arguments["quant_algo"] = "W8A16" if eight else "W4A16"
    return arguments


def config_fields(options: ConvertOptions, stored: Quantization | None) -> dict[str, Any]:
    """What is set in the checkpoint's config beside the model's own."""
    values: dict[str, Any] = {
        "use_parallel_embedding": options.use_parallel_embedding,
        "embedding_sharding_dim": options.embedding_sharding_dim or 0,
    }
    return values | ({"use_autoawq": True} if stored and stored.method == "awq" else {})


def convert(options: ConvertOptions) -> None:
    """Writes the checkpoint, a file for each GPU."""
    from tensorrt_llm.mapping import Mapping
    from tensorrt_llm.models import QWenForCausalLM
    from tensorrt_llm.models.modeling_utils import QuantConfig
    from tensorrt_llm.quantization import QuantAlgo

    stored = EngineSource.read(options.model_dir).quantization
    quantization = QuantConfig(
        **{
            key: QuantAlgo[value] if key.endswith("quant_algo") else value
            for key, value in quant_config(options, stored).items()
        }
    )
    more, ranks = config_fields(options, stored), options.tp_size * options.pp_size

    def mapping(rank: int) -> Any:
        return Mapping(
            world_size=ranks, rank=rank, tp_size=options.tp_size, pp_size=options.pp_size
        )

    def convert_rank(rank: int) -> None:
        model = QWenForCausalLM.from_hugging_face(
            str(options.model_dir),
            options.dtype,
            mapping=mapping(rank),
            quant_config=quantization,
            load_model_on_cpu=options.load_model_on_cpu,
            **more,
        )
        if options.cp_size > 1:  # which weights don't depend on
            placed = model.config.mapping
            placed.cp_size = options.cp_size
            placed.world_size *= options.cp_size
            placed.attn_tp_size = placed.attn_cp_size = -1  # to be inferred anew
        model.save_checkpoint(str(options.output_dir), save_config=rank == 0)

    options.output_dir.mkdir(parents=True, exist_ok=True)
    if options.calibrates:
        QWenForCausalLM.quantize(
            str(options.model_dir),
            str(options.output_dir),
            dtype=options.dtype,
            mapping=mapping(0),
            quant_config=quantization,
            calib_dataset=options.calib_dataset,
            **more,
        )
        return
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(convert_rank, range(ranks)))


if __name__ == "__main__":
    convert(ConvertOptions.parse(sys.argv[1:]))
