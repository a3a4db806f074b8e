from __future__ import annotations

import pytest

from cosyserve.deploy.triton_settings import TritonSettings
from cosyserve.errors import InputError


def test_values_get_their_types() -> None:
    settings = TritonSettings.of(
        ["triton_max_batch_size=4", "decoupled_mode=False", "kv_cache_free_gpu_mem_fraction=0.7"],
        model_dir="m",
    )
    assert settings.triton_max_batch_size == 4
    assert settings.decoupled_mode is False
    assert settings.kv_cache_free_gpu_mem_fraction == 0.7
    assert settings.model_dir == "m"


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [
        ("bls_instances=4", "bls_instance_num"),  # the valid names are listed
        ("slots", "key=value"),
        ("slots=", "whole number"),
        ("slots=0", "1..1024"),
        ("slots=1.5", "whole number"),
        ("kv_cache_free_gpu_mem_fraction=nan", "0.01..1"),
        ("decoupled_mode=yes", "true or false"),
        ("triton_backend=onnx", "python, tensorrtllm"),
        ("triton_backend=tensorrtllm", "engine_dir"),
        ("voices=${voices}", "not filled in"),
    ],
)
def test_what_is_wrong_is_named(pair: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        TritonSettings.of([pair])


def test_there_is_one_lm() -> None:
    with pytest.raises(InputError, match="one LM"):
        TritonSettings.of(["triton_backend=tensorrtllm", "engine_dir=e", "llm_url=http://x/v1"])
