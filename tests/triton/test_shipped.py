"""The voice of the package on a real Triton server, by name, and how it learns others."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import cosyserve
from cosyserve.contracts import Floats, Mode, Recording, SpeechRequest
from cosyserve.engine.speak import speak
from cosyserve.triton import tensors
from cosyserve.triton.engine import TritonEngine
from cosyserve.triton.speech import speech_inputs
from cosyserve.voices.enroll import enroll
from cosyserve.voices.shipped import describe
from tests.triton.asking import asking
from tests.triton.server import serving

TEXT = "Nobody hesitates to chat."
SSML = f"<speak>{TEXT}<break time='300ms'/>{TEXT}</speak>"


def test_every_shipped_voice_has_its_name(tmp_path: Path) -> None:
    model = cosyserve.load("nano", device="cpu").model
    voices = describe(model).voices

    async def listen(address: str) -> tuple[set[str], list[Floats]]:
        engine = TritonEngine.of(f"triton://{address}/cosyvoice2_streaming")
        try:
            await engine.start()
            voice = engine.model.voices["bf_emma"]
            heard: list[Floats] = []
            for text in (TEXT, SSML):
                request = SpeechRequest(text, voice, Mode.PRESET, seed=2, stream=True)
                found = [chunk.samples async for chunk in engine.open(request)]
                heard.append(np.concatenate(found))
            return set(engine.model.voices), heard
        finally:
            await engine.close()

    options = {"options": tensors.text(json.dumps({"seed": 2, "stream": True}))}
    unnamed = speech_inputs(TEXT) | options  # as a client asks that sends no recording
    settings = ("default_voice=bf_emma", "decoupled_mode=false")
    models = [
        "cosyvoice2",
        "cosyvoice2_streaming",
        "token2wav",
        "tensorrt_llm",
        "speaker_embedding",
    ]
    noise = 0.1 * np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    recording = np.pad(noise, 8_000)  # its encoder has not learnt silence
    with serving(tmp_path, "nano", *settings, models=models) as server:
        names, (found, in_parts) = asyncio.run(listen(server.grpc))
        answer = asking(server, lambda c: c.infer("cosyvoice2", unnamed, seconds=60))
        given = {"reference_wav": recording[None]}
        learnt = asking(server, lambda c: c.infer("speaker_embedding", given, seconds=60))
    assert names == set(voices)
    embedding = enroll(model, Recording(recording, 16_000)).embedding
    np.testing.assert_allclose(learnt["embedding"][0], embedding, rtol=1e-3, atol=1e-4)
    request = SpeechRequest(TEXT, voices["bf_emma"], Mode.ZERO_SHOT, seed=2, stream=True)
    expected = np.concatenate([chunk.samples for chunk in speak(model, request)])
    assert np.abs(answer["waveform"][0] - expected).max() < 1e-3
    assert len(found) == len(expected)
    assert np.abs(found - expected).max() < 1e-3
    # Its pause is behind the speech, but not where a break is.
    assert found[:-5760][-960:].any()
    assert not found[-5760:].any()
    first = len(found) - 5760
    np.testing.assert_allclose(in_parts[:first], found[:first], atol=1e-3)
    assert not in_parts[first : first + 7200].any()
    again = np.concatenate([c.samples for c in speak(model, replace(request, seed=3))])
    np.testing.assert_allclose(in_parts[first + 7200 :], again, atol=1e-3)
