"""What a Triton server says of its model, and what becomes of its speech when it says little."""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.checkpoints import native, testmodel
from cosyserve.contracts import Sampling
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.triton import tensors
from cosyserve.triton.upstream import CHECK_EVERY, HUNG_AFTER, ServedModel, Upstream
from tests.triton.asking import LIMITS
from tests.triton.scripted import STREAMING, Scripted, script, scripted

LLM = ("llm_url=http://llm:8000/v1", "llm_top_k=40", "llm_temperature=0.7")


def config(folder: Path, *settings: str, model: str = "test") -> dict[str, Any]:
    """The speech model's, as a server says it."""
    render(TritonSettings.of(settings, model_dir=model), folder)
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


def test_a_model_says_how_it_is_best_sampled_itself(tmp_path: Path) -> None:
    parts = testmodel.random_parts()
    own = Sampling(top_p=0.5, top_k=10)
    native.write(replace(parts, config=replace(parts.config, sampling=own)), tmp_path / "model")
    found = config(tmp_path / "repository", model=str(tmp_path / "model"))
    assert ServedModel.of(found).info.sampling == own


@pytest.mark.parametrize("given", ["", "{", "[1]", '{"top_p": 9}', '{"top_p": "x"}', '{"new": 1}'])
def test_sampling_that_nobody_knows_is_the_usual(tmp_path: Path, given: str) -> None:
    found = config(tmp_path / "repository")
    found["parameters"]["sampling"] = {"string_value": given}
    assert ServedModel.of(found).info.sampling == Sampling()


def test_servers_that_sample_differently_serve_the_same_model(tmp_path: Path) -> None:
    ours, other = config(tmp_path / "ours"), config(tmp_path / "other", *LLM)
    assert ServedModel.of(ours) == ServedModel.of(other)


@pytest.mark.server
def test_a_model_that_is_unloaded_finishes_its_speech(tmp_path: Path) -> None:
    """A server that answers does not hang, whatever it answers."""
    pause = 2 * HUNG_AFTER * CHECK_EVERY / 8

    async def heard(server: Scripted) -> tuple[int, bool]:
        upstream, begun, chunks = Upstream(server.grpc, [STREAMING]), asyncio.Event(), 0

        async def listen() -> int:
            nonlocal chunks
            inputs = {"target_text": tensors.text(script(chunks=8, pause=pause))}
            async for _ in upstream.client.stream(STREAMING, inputs, **LIMITS):
                chunks += 1
                begun.set()
            return chunks

        try:
            while not upstream.ready:
                await asyncio.sleep(0.05)
            speech = asyncio.create_task(upstream.while_alive(listen()))
            await begun.wait()
            url = f"http://{server.http}/v2/repository/models/{STREAMING}/unload"
            await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(url, b"{}"))
            return await speech, upstream.ready
        finally:
            await upstream.close()

    options = "--model-control-mode=explicit", f"--load-model={STREAMING}"
    with scripted(tmp_path / "repository", options=options) as server:
        assert asyncio.run(heard(server)) == (8, False)
