"""The whole engine as it runs on a GPU, on a CPU: padded shapes, the host one step behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Floats, Mode, SpeechRequest
from cosyserve.engine.compute.graphs import padded_flow, vocoder
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.plan import plan
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.speak import speak
from cosyserve.engine.tts import TTS
from cosyserve.errors import CosyError

TEXTS = ("Hello there.", "How are you today, my friend?", "So.")


def static_scheduler(model: Model, slots: int) -> Scheduler:
    lm, _ = model.need_lm()
    runner = LMRunner(lm, slots, MAX_POSITIONS, DeviceQueue(torch.device("cpu"), static=True))
    token2wav = Token2Wav(*model.need_token2wav(), (1, 2, 4), static=True)
    return Scheduler(
        runner,
        [token2wav],
        lambda request, read, _: plan(model, token2wav, request, read),
        slots=slots,
    )


def test_it_speaks_as_the_plain_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_flow, "SIZES", (56, 280))
    monkeypatch.setattr(vocoder, "SIZES", (64, 560))
    model = assemble(random_parts())
    voice = TTS(model).default_voice
    requests = [
        SpeechRequest(text, voice, Mode.PRESET, seed=seed, stream=seed != 1)
        for seed, text in enumerate(TEXTS)
    ]
    scheduler = static_scheduler(model, 2)
    scheduler.warm_up()
    heard: list[list[AudioChunk | CosyError]] = [[] for _ in requests]
    for request, found in zip(requests, heard, strict=True):
        scheduler.open(request, found.append)
    while scheduler.step():
        pass
    scheduler.check_idle()
    for request, found in zip(requests, heard, strict=True):
        ours, wanted = joined(found), joined(list(speak(model, request)))
        assert len(ours) == len(wanted) > 0
        assert np.sqrt(np.mean((ours - wanted) ** 2)) < 1e-4


def joined(chunks: list[AudioChunk | CosyError]) -> Floats:
    assert all(isinstance(chunk, AudioChunk) for chunk in chunks), chunks
    return np.concatenate([c.samples for c in chunks if isinstance(c, AudioChunk)])
