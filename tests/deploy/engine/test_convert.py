"""What TensorRT-LLM's converter is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosyserve.deploy.engine.convert import config_fields, quant_config
from cosyserve.deploy.engine.options import ConvertOptions
from cosyserve.deploy.engine.source import Quantization

INT4_GPTQ = {"use_weight_only": True, "weight_only_precision": "int4_gptq", "per_group": True}


def options(**values: Any) -> ConvertOptions:
    return ConvertOptions(model_dir=Path("lm"), output_dir=Path("checkpoint"), **values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({"use_weight_only": True}, {"quant_algo": "W8A16"}),
        ({"use_weight_only": True, "weight_only_precision": "int8"}, {"quant_algo": "W8A16"}),
        ({"use_weight_only": True, "weight_only_precision": "int4"}, {"quant_algo": "W4A16"}),
        ({"int8_kv_cache": True}, {"kv_cache_quant_algo": "INT8"}),
        (
            {"use_weight_only": True, "int8_kv_cache": True},
            {"quant_algo": "W8A16", "kv_cache_quant_algo": "INT8"},
        ),
        (
            INT4_GPTQ | {"group_size": 64},
            {
                "quant_algo": "W4A16_GPTQ",
                "group_size": 64,
                "has_zero_point": False,
                "pre_quant_scale": False,
            },
        ),
    ],
)
def test_quantization(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert quant_config(options(**values), Quantization("gptq", 64, False, False)) == expected


@pytest.mark.parametrize(
    ("channel", "token", "name"),
    [
        (False, False, "W8A8_SQ_PER_TENSOR_PLUGIN"),
        (False, True, "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN"),
        (True, False, "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN"),
        (True, True, "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"),
    ],
)
def test_smoothquant(channel: bool, token: bool, name: str) -> None:
    given = options(smoothquant=0.4, per_channel=channel, per_token=token)
    assert quant_config(given, None) == {"quant_algo": name, "smoothquant_val": 0.4}


def test_the_embedding_and_awq_are_told() -> None:
    split = options(tp_size=2, use_parallel_embedding=True, embedding_sharding_dim=1)
    fields = {"use_parallel_embedding": True, "embedding_sharding_dim": 1}
    assert config_fields(split, None) == fields
    assert config_fields(split, Quantization("gptq", 128, True, False)) == fields
    stored = Quantization("awq", 128, True, False)
    assert config_fields(split, stored) == fields | {"use_autoawq": True}
