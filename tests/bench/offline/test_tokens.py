"""Tokens to audio: however they are cut, the audio is the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import decode
from cosyserve.bench.offline.token_items import TokenItem
from cosyserve.bench.offline.tokens import (
    Streaming,
    TokenTimes,
    TokenUtterance,
    run_tokens,
    speak_tokens,
    utterance,
)
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording, Voice
from cosyserve.engine.compute.hops import DOUBLING, EQUAL, NEVER, hop_ends
from cosyserve.engine.split.token2wav_service import Token2WavService
from cosyserve.errors import InputError
from cosyserve.voices.enroll import enroll
from cosyserve.voices.shipped import default_voice
from tests.decibels import decibels

TOKENS = tuple(np.random.default_rng(1).integers(0, 6561, 120).tolist())
ONCE = Streaming(lambda _: iter([NEVER]), 3)


def streaming(hop: int, growth: int) -> Streaming:
    return Streaming(partial(hop_ends, grid=25, hop=hop, growth=growth), 3)


def spoken(
    model: Model, one: TokenUtterance, *ways: Streaming | None
) -> list[tuple[TokenTimes, Floats]]:
    async def speak() -> list[tuple[TokenTimes, Floats]]:
        token2wav = Token2WavService(*model.need_token2wav())
        try:
            return [await speak_tokens(token2wav, one, way) for way in ways]
        finally:
            assert token2wav.streams == 0
            await token2wav.close()

    return asyncio.run(speak())


# Behind a prompt of 87 tokens hops end at 13, 38, 88; 13, 38, 63, 88, 113; 13, 63, 113.
@pytest.mark.parametrize(("prompted", "calls"), [(True, [4, 6, 4]), (False, [4, 5, 3])])
def test_every_strategy_makes_the_same_audio(
    either_model: Model, either_voice: Voice, prompted: bool, calls: list[int]
) -> None:
    one = TokenUtterance("a", TOKENS, either_voice if prompted else default_voice(either_model))
    ways = ONCE, streaming(25, DOUBLING), streaming(25, EQUAL), streaming(50, EQUAL)
    (whole, expected), *others = spoken(either_model, one, *ways)
    assert whole.calls == 1
    assert whole.audio_seconds == pytest.approx(120 / 25)
    assert [times.calls for times, _ in others] == calls
    for times, samples in others:
        assert 0 < times.first < times.total
        assert decibels(samples, expected) < -40


def test_a_whole_utterance_is_one_call_with_full_attention(model: Model, voice: Voice) -> None:
    one = TokenUtterance("a", TOKENS[:60], voice)
    ((times, samples), (_, masked)) = spoken(model, one, None, ONCE)
    assert (times.calls, len(samples)) == (1, 60 * 960)
    assert np.abs(samples - masked).max() > 1e-3


def test_chunks_end_with_all_tokens_once() -> None:
    cuts = [list(map(len, streaming(25, EQUAL).chunks(0, range(n)))) for n in (1, 28, 29, 53, 54)]
    assert cuts == [[1], [28], [28, 29], [28, 53], [28, 53, 54]]


def test_a_run_counts_its_last_round_and_keeps_its_speech(model: Model, tmp_path: Path) -> None:
    ones = [TokenUtterance(name, TOKENS[:30], default_voice(model)) for name in ("a", "b/c")]

    async def measure(runs: int, folder: Path | None) -> list[TokenTimes]:
        token2wav = Token2WavService(*model.need_token2wav())
        try:
            way = streaming(25, EQUAL)
            return await run_tokens(token2wav, ones, way, runs=runs, folder=folder)
        finally:
            await token2wav.close()

    times = asyncio.run(measure(2, tmp_path / "new"))
    assert [(one.id, one.tokens, one.calls) for one in times] == [("a", 30, 2), ("b/c", 30, 2)]
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["a.wav", "b_c.wav"]
    assert len(decode(tmp_path / "new" / "a.wav").samples) == 30 * 960
    with pytest.raises(InputError, match="runs must be at least 1"):
        asyncio.run(measure(0, None))


def test_the_voice_is_that_of_the_recording(either_model: Model) -> None:
    noise = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * 0.1
    recording = Recording(noise, 24_000, "Words.")
    learned = enroll(either_model, recording)
    found = utterance(either_model, TokenItem("a", (1, 2), recording)).voice
    assert found.content_hash == learned.content_hash
    given = tuple(range(len(learned.speech_tokens)))
    item = TokenItem("a", (1, 2), recording, given)
    expected = replace(learned, speech_tokens=np.arange(len(given), dtype=np.int32))
    assert utterance(either_model, item).voice.content_hash == expected.content_hash
    own = utterance(either_model, TokenItem("a", (1, 2))).voice
    assert own.content_hash == default_voice(either_model).content_hash


def test_tokens_that_the_model_lacks_or_has_no_room_for(model: Model) -> None:
    with pytest.raises(InputError, match=r"a: tokens must be 0\.\.6560, got 6561"):
        utterance(model, TokenItem("a", (1, 6561)))
    with pytest.raises(InputError, match=r"a: 9999 tokens, \d+ fit behind the prompt"):
        utterance(model, TokenItem("a", (1,) * 9999))
