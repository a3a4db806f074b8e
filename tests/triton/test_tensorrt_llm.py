"""What cosyvoice2 asks of `tensorrt_llm`: Triton's own backend, or our LM behind its tensors."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncGenerator, Iterator
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.choices import LLMSampling
from cosyserve.contracts import Sampling
from cosyserve.triton.vocabulary import COSYVOICE2

REQUEST = LMRequest((5, 6), (7,), min_tokens=2, max_tokens=400, seed=3)
VOCABULARY = COSYVOICE2.lm
SAMPLING = LLMSampling(0.7, 0.9, 40, 1.2, max_tokens=20)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, which only a process of Triton's can import as it is."""
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", MagicMock())
    yield importlib.import_module("cosyserve.triton.models.backends")
    for name in set(sys.modules) - before:
        if name.startswith("cosyserve.triton.models"):
            del sys.modules[name]


class Recorder:
    """A client of a Triton server that always says the same."""

    def __init__(self) -> None:
        self.inputs: dict[str, list[Any]] = {}

    async def stream(self, model: str, inputs: Any, **_: Any) -> AsyncGenerator[Any, None]:
        self.inputs = {name: array.reshape(-1).tolist() for name, array in inputs.items()}
        ids = [VOCABULARY.text + 1, VOCABULARY.end, -1]  # a shorter beam is filled up
        yield {
            "output_ids": np.array([[ids]], np.int32),
            "sequence_length": np.array([[2]], np.int32),
        }


def asked(lm: Any, request: LMRequest = REQUEST) -> dict[str, list[Any]]:
    lm._client = client = Recorder()

    async def run() -> None:
        assert [p async for p in lm.generate(request)] == [
            SpeechTokens((1,)),
            SpeechTokens((), "stop"),
        ]

    asyncio.run(run())
    return client.inputs


def test_the_backend_samples_as_the_settings_say(backends: ModuleType) -> None:
    found = asked(backends.TritonLM("here", SAMPLING, VOCABULARY))
    assert found["input_ids"] == VOCABULARY.prompt(REQUEST)
    assert found["temperature"] == pytest.approx([0.7])
    assert found["repetition_penalty"] == pytest.approx([1.2])
    assert found["runtime_top_p"] == pytest.approx([0.9])
    assert found["runtime_top_k"] == [40]
    assert found["request_output_len"] == [20]
    assert found["end_id"] == found["pad_id"] == [VOCABULARY.end]


def test_a_requests_own_sampling_goes_before(backends: ModuleType) -> None:
    own = LMRequest((5,), (), 2, 9, sampling=Sampling(0.5, 7, temperature=0.6))
    found = asked(backends.TritonLM("here", SAMPLING, VOCABULARY), own)
    assert (found["runtime_top_p"], found["runtime_top_k"]) == ([0.5], [7])
    assert found["temperature"] == pytest.approx([0.6])
    assert found["request_output_len"] == [9]


def test_our_lm_knows_its_own_sampling(backends: ModuleType) -> None:
    found = asked(backends.TritonLM("here", None, VOCABULARY))
    others = {"temperature", "repetition_penalty", "runtime_top_p", "runtime_top_k", "end_id"}
    assert not others & found.keys()
    assert found["request_output_len"] == [400]


def test_our_lm_is_told_a_requests_own_sampling(backends: ModuleType) -> None:
    own = LMRequest((5,), (), 2, 9, sampling=Sampling(0.5, 7, temperature=0.6))
    found = asked(backends.TritonLM("here", None, VOCABULARY), own)
    assert (found["runtime_top_p"], found["runtime_top_k"]) == ([0.5], [7])
    assert found["temperature"] == pytest.approx([0.6])
    assert "repetition_penalty" not in found
