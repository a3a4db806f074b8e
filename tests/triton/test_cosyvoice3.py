"""CosyVoice3 on a real server: the original's models, and the speech of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import whisper_log_mel
from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Mode, Recording, SpeechRequest, Voice
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.speak import speak
from cosyserve.errors import InputError
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.engine import TritonEngine
from cosyserve.triton.tensors import Array
from cosyserve.voices.enroll import enroll
from tests.decibels import decibels
from tests.triton.asking import asking, comes_to_rest
from tests.triton.server import Served, serving

TEXT = "Speech tokens become frames, and frames become samples."
LIMITS = {"first_seconds": 60.0, "between_seconds": 60.0}


@pytest.fixture(scope="module")
def cosyvoice3(native3_folder: Path) -> Model:
    return load_folder(native3_folder)


@pytest.fixture(scope="module")
def speaker(cosyvoice3: Model, recording: Floats) -> Voice:
    return enroll(cosyvoice3, Recording(recording, 16_000, "A few words.", name="noise"))


@pytest.fixture(scope="module")
def served3(tmp_path_factory: pytest.TempPathFactory, native3_folder: Path) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served3"), str(native3_folder)) as server:
        yield server


def in_process(model: Model, request: SpeechRequest) -> Floats:
    return np.concatenate([chunk.samples for chunk in speak(model, request)])


def test_a_stream_is_the_engines(served3: Served, cosyvoice3: Model, recording: Floats) -> None:
    """Through a gateway's engine, which finds the model by itself and learns a voice there."""
    given = Recording(recording, 16_000, "A few words.", name="noise")

    async def listen() -> tuple[Voice, list[Floats]]:
        engine = TritonEngine.of(f"triton://{served3.grpc}")
        try:
            await engine.start()
            assert engine.model.family == "cosyvoice3"
            voice = await engine.embed(given)
            request = SpeechRequest(TEXT, voice, Mode.INSTRUCT, "Speak slowly.", stream=True)
            return voice, [chunk.samples async for chunk in engine.open(request)]
        finally:
            await engine.close()

    voice, found = asyncio.run(listen())
    expected = enroll(cosyvoice3, given)
    assert voice.speech_tokens.tolist() == expected.speech_tokens.tolist()
    np.testing.assert_allclose(voice.mel, expected.mel, atol=1e-5)
    request = SpeechRequest(TEXT, expected, Mode.INSTRUCT, "Speak slowly.", stream=True)
    assert len(found) > 1
    assert decibels(np.concatenate(found), in_process(cosyvoice3, request)) < -40
    comes_to_rest(served3)


def test_the_originals_client_is_answered(
    served3: Served, cosyvoice3: Model, recording: Floats, speaker: Voice
) -> None:
    """Streamed over gRPC and whole; the assistant's words are added to the reference text."""
    given = {
        "reference_wav": recording[None],
        "reference_wav_len": np.array([[len(recording)]], np.int32),
        "reference_text": tensors.text("A few words."),
        "target_text": tensors.text(TEXT),
    }

    async def both(client: TritonClient) -> tuple[list[Floats], dict[str, Array]]:
        stream = client.stream("cosyvoice3", given, **LIMITS)
        streamed = [answer["waveform"][0] async for answer in stream]
        return streamed, await client.infer("cosyvoice3_offline", given, seconds=60)

    streamed, whole = asking(served3, both)
    for found, stream in ((np.concatenate(streamed), True), (whole["waveform"][0], False)):
        expected = in_process(cosyvoice3, SpeechRequest(TEXT, speaker, stream=stream))
        assert decibels(found, expected) < -40


def test_recordings_become_plain_tokens(
    served3: Served, cosyvoice3: Model, recording: Floats
) -> None:
    given = {
        "reference_wav": recording[None],
        "reference_wav_len": np.array([[len(recording)]], np.int32),
    }
    found = asking(served3, lambda c: c.infer("audio_tokenizer", given, seconds=30))
    tokenizer, _ = cosyvoice3.need_prompt_encoders()
    expected = tokenizer(whisper_log_mel(recording)).tolist()
    assert found["prompt_speech_tokens"][0].tolist() == expected


def test_tokens_become_frames_and_frames_become_samples(
    served3: Served, cosyvoice3: Model, speaker: Voice
) -> None:
    """As the original asks: frames from an offset on, then all frames so far to the vocoder, of
    whose samples those are new that it has not heard."""
    tokens = np.random.default_rng(1).integers(0, 6561, 90).tolist()
    first = -len(speaker.speech_tokens) % 25  # on the grid, where chunks are exact
    prompt = {
        "prompt_speech_tokens": speaker.speech_tokens[None],
        "prompt_speech_feat": speaker.mel[None].astype(np.float16),
        "prompt_spk_embedding": speaker.embedding[None].astype(np.float16),
    }

    async def ask(client: TritonClient) -> Floats:
        mel, heard = np.zeros((80, 0), np.float32), np.zeros(0, np.float32)
        offset = 0
        for end, final in ((first, False), (first + 25, False), (90, True)):
            given = prompt | {
                "target_speech_tokens": np.array([tokens[: end if final else end + 3]], np.int32),
                "token_offset": np.array([[offset]], np.int32),
                "finalize": np.array([[final]]),
            }
            asked = client.stream("token2wav", given, outputs=("mel",), **LIMITS)
            (answer,) = [found async for found in asked]
            assert answer.keys() == {"mel"}
            mel = np.concatenate((mel, answer["mel"][0]), axis=1)
            assert mel.shape == (80, 2 * end)
            given = {"mel": mel[None], "finalize": np.array([[final]])}
            samples = (await client.infer("vocoder", given, seconds=30))["tts_speech"][0]
            np.testing.assert_allclose(samples[: len(heard)], heard, atol=1e-3)
            heard, offset = samples, end
        return heard

    found = asking(served3, ask)
    rounded = Voice(
        "",
        speaker.speech_tokens,
        speaker.mel.astype(np.float16).astype(np.float32),
        speaker.embedding.astype(np.float16).astype(np.float32),
        family="cosyvoice3",
    )
    token2wav = Token2Wav(*cosyvoice3.need_token2wav())
    begun = token2wav.begin(rounded, with_prompt=True, seed=0, speed=1.0)
    ((expected, _),) = token2wav.advance([begun], [tokens], [True])
    assert decibels(found, expected) < -40


@pytest.mark.parametrize(
    ("mel", "complaint"),
    [
        (np.zeros((1, 80, 0), np.float32), r"80 bins of 1 to"),
        (np.full((1, 80, 9), np.nan, np.float32), "not finite"),
    ],
)
def test_what_is_no_mel_is_refused(served3: Served, mel: Array, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        asking(served3, lambda c: c.infer("vocoder", {"mel": mel}, seconds=30))
