"""LM and token2wavs on devices of their own: one scheduler, the same speech, nothing left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from cosyserve.checkpoints.load import load_model
from cosyserve.contracts import AudioChunk, Mode, SpeechRequest
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions

pytestmark = pytest.mark.usefixtures("forked")

TEXT = "The quick brown fox jumps over the lazy dog."
DEVICES = ("cpu", "cpu")
OPTIONS = WorkerOptions("test", device="cpu", token2wav_devices=DEVICES, threads=1, slots=2)


async def listen(chunks: AsyncIterator[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples async for chunk in chunks])


async def pieces() -> AsyncIterator[str]:
    for word in TEXT.split(" "):
        yield word + " "


def test_the_speech_is_that_of_one_device() -> None:
    async def run() -> None:
        here = LocalEngine(load_model("test", device="cpu"), slots=2)
        there = WorkerEngine(OPTIONS)
        await there.start()
        voice = there.model.voices["default"]
        for text, stream in ((TEXT, True), (TEXT, False), (pieces, True)):

            def request(text: Any = text, stream: bool = stream) -> SpeechRequest:
                words = text if isinstance(text, str) else text()
                return SpeechRequest(words, voice, Mode.PRESET, seed=5, stream=stream)

            alone = await listen(here.open(request()))
            both = (listen(there.open(request())) for _ in DEVICES)  # a device each
            for heard in await asyncio.gather(*both):
                np.testing.assert_allclose(heard, alone, atol=1e-3)
        await here.close()
        await there.close()

    asyncio.run(run())


def test_each_part_is_on_its_device() -> None:
    model = load_model("test", device="cpu", token2wav_devices=DEVICES)
    lm, _ = model.need_lm()
    (flow, vocoder), (other_flow, other_vocoder) = model.token2wavs
    parts = (lm, flow, vocoder, other_flow, other_vocoder)
    assert {p.device.type for part in parts for p in part.parameters()} == {"cpu"}
    for one, other in ((flow, other_flow), (vocoder, other_vocoder)):
        assert not {id(p) for p in one.parameters()} & {id(p) for p in other.parameters()}
