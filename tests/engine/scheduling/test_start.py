"""A scheduler starts with as many slots as fit."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
from torch import OutOfMemoryError

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Voice
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.profile import CPU_SLOTS
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.compute.warm_up import OutOfGPUMemoryError
from cosyserve.engine.scheduling.start import start_scheduler


def holds(monkeypatch: pytest.MonkeyPatch, fitting: int) -> list[int]:
    """Memory for so many sessions -> the numbers that were tried."""
    tried: list[int] = []
    runners: list[weakref.ref[LMRunner]] = []

    def warm_up(runner: LMRunner) -> int:
        assert not any(earlier() for earlier in runners), "one that failed holds its memory"
        runners.append(weakref.ref(runner))
        tried.append(runner.slots)
        if runner.slots > fitting:
            raise OutOfMemoryError("CUDA out of memory")
        return 0

    monkeypatch.setattr(LMRunner, "warm_up", warm_up)
    return tried


def test_fewer_are_tried_until_they_fit(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = holds(monkeypatch, 2)
    assert start_scheduler(model).slots == 2
    assert tried == [CPU_SLOTS, 6, 4, 3, 2]


def test_slots_that_were_asked_for_are_not_changed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = holds(monkeypatch, 2)
    with pytest.raises(OutOfGPUMemoryError, match="no memory for 3 sessions: set COSYSERVE_SLOTS"):
        start_scheduler(model, slots=3)
    assert tried == [3]


def test_not_even_one_fits(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = holds(monkeypatch, 0)
    with pytest.raises(OutOfGPUMemoryError, match="for 1 sessions"):
        start_scheduler(model)
    assert tried == [CPU_SLOTS, 6, 4, 3, 2, 1]


def test_no_slots_help_where_flow_and_vocoder_do_not_fit(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm_up(_: Token2Wav) -> int:
        raise OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Token2Wav, "warm_up", warm_up)
    with pytest.raises(OutOfGPUMemoryError, match="flow and vocoder: end what else runs"):
        start_scheduler(model)


def test_prompts_of_a_models_own_voices_are_cached_the_default_first(
    model: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: list[Voice] = []
    monkeypatch.setattr(Token2Wav, "cache_prompts", lambda _, voices: cached.extend(voices))
    empty = replace(voice, speech_tokens=voice.speech_tokens[:0], mel=voice.mel[:0])
    voices = {
        "another": replace(voice, name="another"),
        "another model's": replace(voice, embedding=voice.embedding[:5]),
        "beyond the vocabulary": replace(voice, speech_tokens=voice.speech_tokens + 100_000),
        "default": voice,
        "preset": empty,
    }
    start_scheduler(model, voices=voices)
    assert cached == [voices["default"], voices["another"]]
