"""A worker whose flow is computed by another runtime: the same speech."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions

pytestmark = pytest.mark.usefixtures("forked")


def test_a_worker_speaks_through_onnxruntime(model: Model, voice: Voice, tmp_path: Path) -> None:
    request = SpeechRequest("The quick brown fox.", voice, seed=5, stream=True)
    expected = np.concatenate([chunk.samples for chunk in speak(model, request)])

    async def run() -> None:
        options = WorkerOptions("test", device="cpu", threads=1, slots=2)
        options = replace(options, flow_backend="onnxruntime", flow_engines=str(tmp_path))
        engine = WorkerEngine(options)
        try:
            await engine.start()
            found = np.concatenate([chunk.samples async for chunk in engine.open(request)])
        finally:
            await engine.close()
        assert len(found) == len(expected)
        assert 0 < np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)

    asyncio.run(run())
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix] == [".onnx"]
