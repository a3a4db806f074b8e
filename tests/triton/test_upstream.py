from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.contracts import Sampling
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.triton.upstream import ServedModel

LLM = ("llm_url=http://llm:8000/v1", "llm_top_k=40", "llm_temperature=0.7")


def config(folder: Path, *settings: str) -> dict[str, Any]:
    """The speech model's, as a server says it."""
    render(TritonSettings.of(settings, model_dir="test"), folder)
    written = (folder / "cosyvoice2" / "config.pbtxt").read_text()
    parsed = text_format.Parse(written, pb.ModelConfig())
    return json_format.MessageToDict(parsed, preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [((), Sampling()), (LLM, Sampling(0.95, 40, temperature=0.7))],
    ids=["ours", "llm_url"],
)
def test_a_model_is_best_sampled_as_its_lm_is(
    tmp_path: Path, settings: tuple[str, ...], sampling: Sampling
) -> None:
    assert ServedModel.of(config(tmp_path / "repository", *settings)).info.sampling == sampling


def test_servers_that_sample_differently_serve_the_same_model(tmp_path: Path) -> None:
    ours, other = config(tmp_path / "ours"), config(tmp_path / "other", *LLM)
    assert ServedModel.of(ours) == ServedModel.of(other)
