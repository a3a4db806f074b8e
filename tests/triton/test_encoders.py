"""The models that listen to recordings, asked directly, over gRPC and HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from cosyserve.audio import whisper_log_mel
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording
from cosyserve.errors import OverloadError, VoiceError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.tensors import Array
from cosyserve.triton.vocabulary import COSYVOICE2 as VOCABULARY
from cosyserve.voices.enroll import enroll
from tests.triton.asking import LIMITS, asking, one, over_http
from tests.triton.server import Served


def recordings() -> list[Floats]:
    chance = np.random.default_rng(2)
    sizes = (9_000, 20_000, 13_337, 40_000, 16_000)
    return [(0.1 * chance.standard_normal(size)).astype(np.float32) for size in sizes]


def test_recordings_become_tokens_in_batches(served: Served, model: Model) -> None:
    tokenizer, _ = model.need_prompt_encoders()

    async def together(client: TritonClient) -> list[dict[str, Array]]:
        given = [
            {"reference_wav": wave[None], "reference_wav_len": one(len(wave), np.int32)}
            for wave in recordings()
        ]
        asked = (client.infer("audio_tokenizer", row, seconds=30) for row in given)
        return list(await asyncio.gather(*asked))

    for wave, found in zip(recordings(), asking(served, together), strict=True):
        expected = tokenizer(whisper_log_mel(wave)) + VOCABULARY.first
        assert found["prompt_speech_tokens"][0].tolist() == expected.tolist()


def test_a_recording_ends_where_it_says(served: Served) -> None:
    wave = recordings()[0]
    longer = np.concatenate([wave, np.ones(5_000, np.float32)])
    found = [
        over_http(
            served,
            "audio_tokenizer",
            {"reference_wav": given[None], "reference_wav_len": one(len(wave), np.int32)},
        )["prompt_speech_tokens"].tolist()
        for given in (wave, longer)
    ]
    assert found[0] == found[1]


def test_recordings_become_embeddings(served: Served, model: Model) -> None:
    for wave in recordings():
        found = over_http(served, "speaker_embedding", {"reference_wav": wave[None]})
        expected = enroll(model, Recording(wave, 16_000, "")).embedding
        np.testing.assert_allclose(found["embedding"][0], expected, rtol=1e-4, atol=1e-5)
        half = found["prompt_spk_embedding"]
        assert half.dtype == np.float16
        np.testing.assert_allclose(half[0], expected, rtol=1e-2, atol=1e-2)


def test_a_broken_recording_fails_alone(served: Served) -> None:
    good, broken = recordings()[1], np.full(16_000, np.nan, np.float32)

    async def together(client: TritonClient) -> list[Any]:
        asked = (
            client.infer("speaker_embedding", {"reference_wav": wave[None]}, seconds=30)
            for wave in (good, broken, good, good[:10])
        )
        return list(await asyncio.gather(*asked, return_exceptions=True))

    found = asking(served, together)
    assert [type(item) for item in found] == [dict, VoiceError, dict, VoiceError]


def test_whoever_has_waited_too_long_is_told(served: Served) -> None:
    wave = np.concatenate([recordings()[3]] * 4)
    given = {"reference_wav": wave[None], "reference_wav_len": one(len(wave), np.int32)}

    async def listen(client: TritonClient, microseconds: int) -> int:
        limit = {"timeout": microseconds}
        answers = client.stream("audio_tokenizer", given, parameters=limit, **LIMITS)
        return len([answer async for answer in answers])

    async def together(client: TritonClient) -> list[int | BaseException]:
        impatient = [listen(client, 1) for _ in range(7)]
        return await asyncio.gather(*impatient, return_exceptions=True)

    found = asking(served, together)
    assert any(isinstance(end, OverloadError) for end in found)  # behind the first one
    assert all(isinstance(end, OverloadError) or end == 1 for end in found), found
    assert asking(served, lambda client: listen(client, 30_000_000)) == 1
