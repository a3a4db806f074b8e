"""Settings of a Triton repository: typed, bounded, shown by the command and documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from annotated_types import Ge, Le
from pydantic import BaseModel

from cosyserve.contracts import MAX_TEMPERATURE, MIN_TEMPERATURE
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.settings import Settings

FIELDS = TritonSettings.model_fields
PAGE = Path(__file__).parents[3] / "docs" / "triton.md"


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
        ("slots=1.0", "slots must be a whole number of 1..1024, got '1.0'"),
        ("slots=true", "whole number"),
        ("stream_seconds=0.5", "stream_seconds must be a number of 1..inf, got '0.5'"),
        ("kv_cache_free_gpu_mem_fraction=nan", "0.01..1"),
        ("decoupled_mode=yes", "decoupled_mode must be true or false, got 'yes'"),
        ("decoupled_mode=1", "true or false"),
        ("device=meta", "device: unknown device 'meta': use auto, cpu"),
        ("triton_backend=onnx", "python, tensorrtllm"),
        ("triton_backend=tensorrtllm", "engine_dir"),
        ("voices=${voices}", "not filled in"),
        ("voices=a\rb", "not filled in"),
        ("llm_temperature=0.8", "llm_temperature is for llm_url or triton_backend=tensorrtllm"),
        ("llm_api_key=x", "llm_api_key is for an LLM server: set llm_url"),
    ],
)
def test_what_is_wrong_is_named(pair: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        TritonSettings.of([pair])


@pytest.mark.parametrize("settings", [Settings, TritonSettings])
def test_an_llm_server_may_have_the_temperatures_of_a_request(
    settings: type[BaseModel],
) -> None:
    bounds = settings.model_fields["llm_temperature"].metadata
    assert bounds == [Ge(MIN_TEMPERATURE), Le(MAX_TEMPERATURE)]


def test_there_is_one_lm() -> None:
    with pytest.raises(InputError, match="one LM"):
        TritonSettings.of(["triton_backend=tensorrtllm", "engine_dir=e", "llm_url=http://x/v1"])


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("slots= 4", 4),
        ("max_text_characters=10_000", 10_000),
        ("kv_cache_free_gpu_mem_fraction=.7", 0.7),
        ("decoupled_mode=TRUE", True),
        ("voices=", ""),
    ],
)
def test_values_may_be_written_so(pair: str, value: object) -> None:
    assert getattr(TritonSettings.of([pair]), pair.partition("=")[0]) == value


def test_values_of_other_places_are_checked_too() -> None:
    with pytest.raises(InputError, match=r"dtype must be one of auto, .*, got 'int4'"):
        TritonSettings.of([], dtype="int4")


def command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cosyserve", "deploy", "triton", *words],
        env=os.environ | {"COLUMNS": "300", "TERM": "dumb"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.server
def test_the_help_shows_every_key_with_default_and_description() -> None:
    shown = command("--help").stdout
    lines = TritonSettings.help_text().split("\n\n")
    assert len(lines) == len(FIELDS)
    for key, field in FIELDS.items():
        assert field.description
        (line,) = (line for line in lines if line.startswith(f"{key}="))
        assert str(field.default).lower() in line.lower()
        assert line in shown


def test_every_key_is_documented() -> None:
    _, section = PAGE.read_text("utf-8").split("## Settings")
    documented = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))
    assert FIELDS.keys() <= documented


@pytest.mark.server
def test_a_bad_environment_is_one_line(tmp_path: Path) -> None:
    run = command("--model", "test", "--out", str(tmp_path / "repo"), COSYSERVE_PORT="http")
    assert run.returncode == command("--model", "test").returncode  # as for any bad option
    assert len(run.stderr.splitlines()) == 1
    assert "COSYSERVE_PORT" in run.stderr
    assert list(tmp_path.iterdir()) == []
