"""Options of an engine: they travel whole, and those that make no sense are refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cosyserve.deploy.engine.options import BuildOptions, ConvertOptions, check
from cosyserve.deploy.engine.source import EngineSource, Quantization
from cosyserve.errors import InputError
from cosyserve.models.config import LMConfig

PLACES = {"model_dir": Path("lm"), "output_dir": Path("checkpoint")}
BUILD = BuildOptions(engine_dir=Path("engine"))
PLAIN = EngineSource(Path("lm"), LMConfig(), None)
GPTQ = replace(PLAIN, quantization=Quantization("gptq", 128, False, False))
WEIGHT_ONLY: dict[str, Any] = {"use_weight_only": True}
INT4_GPTQ: dict[str, Any] = WEIGHT_ONLY | {"weight_only_precision": "int4_gptq", "per_group": True}
SMOOTH: dict[str, Any] = {"smoothquant": 0.5, "calib_dataset": "texts"}
OTHER_VALUES: dict[str, Any] = {
    "dtype": "bfloat16",
    "tp_size": 2,
    "pp_size": 3,
    "cp_size": 4,
    "use_weight_only": True,
    "weight_only_precision": "int4",
    "smoothquant": 0.25,
    "per_channel": True,
    "per_token": True,
    "int8_kv_cache": True,
    "per_group": True,
    "group_size": 64,
    "calib_dataset": "texts",
    "load_model_on_cpu": True,
    "use_parallel_embedding": True,
    "embedding_sharding_dim": 0,
    "workers": 5,
}


def options(**values: Any) -> ConvertOptions:
    return ConvertOptions(**PLACES, **values)


def test_every_option_has_a_value_here() -> None:
    assert {option.name for option in fields(ConvertOptions)} == OTHER_VALUES.keys() | PLACES.keys()


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_an_option_reaches_the_command_line_and_comes_back(name: str) -> None:
    value, flag = OTHER_VALUES[name], f"--{name.replace('_', '-')}"
    given = options(**{name: value})
    expected = [flag] if value is True else [flag, str(value)]
    assert given.arguments() == ["--model-dir", "lm", "--output-dir", "checkpoint", *expected]
    assert ConvertOptions.parse(given.arguments()) == given


def test_all_options_come_back_together() -> None:
    assert ConvertOptions.parse(options(**OTHER_VALUES).arguments()) == options(**OTHER_VALUES)


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({}, PLAIN),
        ({"dtype": "float32"}, PLAIN),
        (WEIGHT_ONLY, PLAIN),
        (WEIGHT_ONLY | {"weight_only_precision": "int4", "tp_size": 2, "workers": 2}, PLAIN),
        (WEIGHT_ONLY | {"int8_kv_cache": True, "calib_dataset": "texts"}, PLAIN),
        (SMOOTH | {"per_channel": True, "per_token": True, "int8_kv_cache": True}, PLAIN),
        (INT4_GPTQ, GPTQ),
        (INT4_GPTQ | {"group_size": 128, "tp_size": 2}, GPTQ),
        ({"tp_size": 2, "use_parallel_embedding": True, "embedding_sharding_dim": 1}, PLAIN),
        ({"tp_size": 2, "pp_size": 2, "cp_size": 2}, PLAIN),
        ({"tp_size": 14, "load_model_on_cpu": True}, PLAIN),
    ],
)
def test_what_makes_sense_is_accepted(values: dict[str, Any], source: EngineSource) -> None:
    check(options(**values), BUILD, source, None)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"tp_size": 0}, "--tp-size must be at least 1, got 0"),
        ({"workers": -1}, "--workers must be at least 1"),
        ({"dtype": "int8"}, "--dtype must be one of auto, float16, bfloat16, float32"),
        (
            WEIGHT_ONLY | {"weight_only_precision": "fp8"},
            "--weight-only-precision must be one of int8, int4, int4_gptq, got 'fp8'",
        ),
        ({"embedding_sharding_dim": 2}, "--embedding-sharding-dim must be one of 0, 1"),
        (SMOOTH | {"smoothquant": 0.0}, "--smoothquant must be above 0 and at most 1, got 0"),
        (SMOOTH | {"smoothquant": 1.5}, "--smoothquant must be above 0"),
        (SMOOTH | {"smoothquant": float("nan")}, "--smoothquant must be above 0"),
        (WEIGHT_ONLY | SMOOTH, "quantize the same weights: choose one"),
        ({"weight_only_precision": "int8"}, "no effect without --use-weight-only"),
        (WEIGHT_ONLY | {"dtype": "float32"}, "another --dtype than float32"),
        ({"per_channel": True}, "--per-channel says how --smoothquant"),
        ({"per_token": True}, "--per-token says how --smoothquant"),
        (INT4_GPTQ, "config.json has no quantization_config"),
        ({"per_group": True}, "--per-group is for --weight-only-precision int4_gptq"),
        ({"group_size": 64}, "--group-size has no effect without --per-group"),
        ({"group_size": 0}, "--group-size must be at least 1"),
        ({"smoothquant": 0.5}, "calibrate the model on texts: give --calib-dataset"),
        ({"int8_kv_cache": True}, "calibrate the model on texts: give --calib-dataset"),
        ({"calib_dataset": "texts"}, "--calib-dataset is for --smoothquant and --int8-kv-cache"),
        (SMOOTH | {"load_model_on_cpu": True}, "a calibration runs the model on a GPU"),
        (SMOOTH | {"cp_size": 2}, "--cp-size: a model is calibrated without"),
        ({"tp_size": 4}, "14 heads with 2 of keys and values can be split by 1, 2, 14"),
        ({"tp_size": 7}, "can be split by 1, 2, 14"),
        ({"pp_size": 25}, "--pp-size 25: the LM has 24 layers"),
        ({"use_parallel_embedding": True}, "by --tp-size, which is 1"),
        (
            {"embedding_sharding_dim": 1, "tp_size": 2},
            "no effect without --use-parallel-embedding",
        ),
    ],
)
def test_what_makes_none_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        check(options(**values), BUILD, PLAIN, None)


@pytest.mark.parametrize(
    ("values", "stored", "complaint"),
    [
        ({}, {}, r"quantized already \(gptq\): give --use-weight-only"),
        (WEIGHT_ONLY, {}, "quantized already"),
        (INT4_GPTQ | {"per_group": False}, {}, "a scale for each group: give --per-group"),
        (INT4_GPTQ, {"group_size": 64}, "groups have 64 weights: give --group-size 64"),
        (INT4_GPTQ, {"reordered": True}, "can't read GPTQ weights with desc_act"),
        (
            INT4_GPTQ | {"int8_kv_cache": True, "calib_dataset": "texts"},
            {},
            "which weights of int4_gptq can't have",
        ),
    ],
)
def test_quantized_weights_have_one_way(
    values: dict[str, Any], stored: dict[str, Any], complaint: str
) -> None:
    assert GPTQ.quantization
    source = replace(GPTQ, quantization=replace(GPTQ.quantization, **stored))
    with pytest.raises(InputError, match=complaint):
        check(options(**values), BUILD, source, None)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"max_batch_size": 0}, "--max-batch-size must be at least 1"),
        ({"max_num_tokens": 8}, "less than one token for each of --max-batch-size 16"),
        ({"gemm_plugin": "int4"}, "--gemm-plugin must be one of auto, .*, disable"),
        ({"engine_dir": Path("checkpoint")}, "must be two folders"),
    ],
)
def test_builds_that_make_no_sense_are_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        check(options(), replace(BUILD, **values), PLAIN, None)


def test_an_engine_has_no_more_gpus_than_there_are() -> None:
    two = options(tp_size=2)
    check(two, BUILD, PLAIN, 2)
    check(two, BUILD, PLAIN, None)  # nobody knows where it will run
    with pytest.raises(InputError, match="are 4 GPUs, and this machine has 2"):
        check(replace(two, pp_size=2), BUILD, PLAIN, 2)
