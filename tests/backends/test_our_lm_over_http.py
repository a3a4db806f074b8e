"""Our own speech LM behind an LLM server: over HTTP it draws what it draws in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.protocols import LMBackend, LMRequest
from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import Model
from cosyserve.choices import LLMSampling
from cosyserve.engine.split.lm_backends import open_llm_server
from cosyserve.engine.split.lm_service import LMService
from tests.backends.our_lm import serving_lm

SPEECH = (11, 222, 3333)


@pytest.fixture(scope="module", params=["test", "cosyvoice3"])
def family(request: pytest.FixtureRequest) -> Model:
    if request.param == "test":
        model: Model = request.getfixturevalue("model")
        return model
    return load_folder(request.getfixturevalue("cosyvoice3_folder"))


@pytest.fixture(scope="module")
def url(family: Model) -> Iterator[str]:
    with serving_lm(family) as server:
        yield server.url


async def drawn(lm: LMBackend, requests: list[LMRequest]) -> list[tuple[list[int], str | None]]:
    async def one(request: LMRequest) -> tuple[list[int], str | None]:
        pieces = [piece async for piece in lm.generate(request)]
        return [token for piece in pieces for token in piece.ids], pieces[-1].finish

    try:
        return await asyncio.gather(*map(one, requests))
    finally:
        await lm.close()


@pytest.mark.parametrize("prompt", ["ids", "text", "chat"])
def test_the_tokens_are_the_engines(family: Model, url: str, prompt: Any) -> None:
    lm, tokenizer = family.need_lm()
    text = tuple(tokenizer.encode("What I say. The quick brown fox."))
    requests = [
        LMRequest(text, speech, min_tokens=40, max_tokens=most, seed=seed)
        for seed, (speech, most) in enumerate([(SPEECH, 400), ((), 400), (SPEECH, 40)])
    ]
    server = LLMServer(url, "test", prompt=prompt, sampling=LLMSampling(1.0, 0.8, 25))
    expected = asyncio.run(drawn(LMService(lm), requests))

    assert asyncio.run(drawn(open_llm_server(server, family), requests)) == expected
    assert all(len(tokens) >= 40 for tokens, _ in expected)
    assert [finish for _, finish in expected] == ["stop", "stop", "length"]
