"""Many requests in one model, as Triton hands them over: in batches."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from tests.waiting import PATIENCE, wait_until

LIMIT = 5


class RawRequest:
    """A request as the Python backend gives it; its sender keeps what it is sent."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.over = threading.Event()

    def inputs(self) -> list[Any]:
        return []

    def requested_output_names(self) -> list[str]:
        return []

    def parameters(self) -> str:
        return ""

    def get_response_sender(self) -> RawRequest:
        return self

    def is_cancelled(self) -> bool:
        return False

    def send(self, response: Any = None, flags: int = 0) -> None:
        if response is not None and response["error"]:
            self.errors.append(response["error"])
        if flags:
            self.over.set()


@pytest.fixture
def async_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, which only a process of Triton's can import as it is."""
    pb = MagicMock()
    pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    pb.TritonError = lambda message, code=None: message
    pb.TritonError.UNAVAILABLE = 14
    pb.InferenceResponse = lambda tensors, error=None: {"tensors": tensors, "error": error}
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb)
    yield importlib.import_module("cosyserve.triton.models.instance.async_model")
    for name in set(sys.modules) - before:
        if name.startswith("cosyserve.triton.models"):
            del sys.modules[name]


@pytest.fixture
def model(async_model: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One that answers when its event `go` is set."""

    class Waiting(async_model.AsyncTritonModel):  # type: ignore[misc, name-defined]
        def prepare(self) -> None:
            self.go = asyncio.Event()

        async def answers(self, request: Any) -> AsyncGenerator[Any, None]:
            await self.go.wait()
            yield {"waveform": np.zeros((1, 1), np.float32)}

    found = Waiting()
    config = {"name": "m", "parameters": {"max_requests": {"string_value": str(LIMIT)}}}
    found.initialize(
        {"model_config": json.dumps(config), "model_repository": "/", "model_version": "1"}
    )
    yield found
    found.loop.call_soon_threadsafe(found.loop.stop)


def test_only_those_beyond_the_limit_are_refused(model: Any) -> None:
    batch = [RawRequest() for _ in range(2 * LIMIT)]
    model.execute(batch)
    wait_until(lambda: sum(raw.over.is_set() for raw in batch) == LIMIT)
    assert model.held() == {"requests": LIMIT}
    model.loop.call_soon_threadsafe(model.go.set)
    for raw in batch:
        assert raw.over.wait(PATIENCE)
    assert [len(raw.errors) for raw in batch] == [0] * LIMIT + [1] * LIMIT
    assert "5 requests are being answered already" in batch[-1].errors[0]


def test_times_go_on_until_the_last_answer(model: Any) -> None:
    batch = [RawRequest() for _ in range(2)]
    model.execute(batch)  # which returns at once
    wait_until(lambda: model.held() == {"requests": 2})
    time.sleep(0.1)
    model.loop.call_soon_threadsafe(model.go.set)
    wait_until(lambda: model.totals()["request_success"] == 2)
    found = model.totals()
    assert 2 * 0.1e6 < found["request_duration_us"] < 2 * 5e6
    assert found["first_response_duration_us"] <= found["request_duration_us"]
    assert found["request_failure"] == found["request_cancelled"] == 0
