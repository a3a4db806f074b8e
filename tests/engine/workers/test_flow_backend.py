"""A worker whose flow and speaker encoder are computed by another runtime: the same speech, the
same voices."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Recording, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.voices.enroll import enroll

pytestmark = pytest.mark.usefixtures("forked")


def test_a_worker_speaks_and_listens_elsewhere(model: Model, voice: Voice, tmp_path: Path) -> None:
    request = SpeechRequest("The quick brown fox.", voice, seed=5, stream=True)
    expected = np.concatenate([chunk.samples for chunk in speak(model, request)])
    noise = np.random.default_rng(1).standard_normal(50_000).astype(np.float32)
    recording = Recording(0.1 * noise, 24_000)
    heard = enroll(model, recording).embedding

    async def run() -> None:
        options = WorkerOptions("test", device="cpu", threads=1, slots=2)
        options = replace(options, flow_backend="onnxruntime", flow_engines=str(tmp_path))
        engine = WorkerEngine(options)
        try:
            await engine.start()
            found = np.concatenate([chunk.samples async for chunk in engine.open(request)])
            learned = await engine.embed(recording)
        finally:
            await engine.close()
        assert len(found) == len(expected)
        assert 0 < np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)
        assert 0 < np.linalg.norm(learned.embedding - heard) < 1e-4 * np.linalg.norm(heard)

    asyncio.run(run())
    flow, speaker = sorted(path.name for path in tmp_path.glob("*.float32.onnx"))
    assert (flow[:11], speaker[:8]) == ("flow.whole.", "speaker.")
