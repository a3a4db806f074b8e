"""An LM alone and a token2wav alone, joined: the speech of the engine in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Mode, SpeechRequest, Voice
from cosyserve.engine.scheduling.lm_requests import LMTask
from cosyserve.engine.speak import speak
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.split.token2wav_service import Token2WavService
from cosyserve.errors import InputError
from tests.decibels import decibels
from tests.engine.split.listening import comes_to_rest, heard, samples, services, weightless

TEXT = "The quick brown fox jumps over the lazy dog."
LONG = " ".join(f"{TEXT} And it does so once more, number {n}." for n in ("one", "two"))


@pytest.fixture(scope="module")
def either_engine(either_model: Model) -> Iterator[SplitEngine]:
    with services(either_model) as alone:
        yield SplitEngine(weightless(either_model), *alone)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**40),
    st.booleans(),
    st.sampled_from([Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.PRESET]),
    st.sampled_from([1.0, 0.8, 1.5]),
    st.sampled_from([TEXT, LONG]),
)
def test_the_speech_is_that_of_one_process(
    either_model: Model,
    either_engine: SplitEngine,
    either_voice: Voice,
    seed: int,
    stream: bool,
    mode: Mode,
    speed: float,
    text: str,
) -> None:
    request = SpeechRequest(text, either_voice, mode=mode, seed=seed, speed=speed, stream=stream)
    expected = list(speak(either_model, request))
    found = asyncio.run(heard(either_engine, request))
    # How many tokens a later chunk takes depends on how far the LM has run ahead.
    assert [c.index for c in found] == list(range(len(found)))
    assert found[0].tokens == expected[0].tokens
    assert sum(c.tokens for c in found) == sum(c.tokens for c in expected)
    assert sum(c.text_tokens for c in found) == sum(c.text_tokens for c in expected)
    assert found[-1].finish == expected[-1].finish
    assert decibels(samples(found), samples(expected)) < -40


def test_a_pause_is_heard_behind_every_utterance(
    model: Model, voice: Voice, parts_alone: tuple[LMService, Token2WavService]
) -> None:
    assert model.config.lm
    lm = replace(model.config.lm, pause=0.1)
    paused = replace(model, config=replace(model.config, lm=lm))
    request = SpeechRequest(LONG, voice, seed=3, stream=False)
    whole, expected = samples(list(speak(model, request))), samples(list(speak(paused, request)))
    pauses, rest = divmod(len(expected) - len(whole), 2400)
    assert (pauses > 1, rest) == (True, 0)
    assert not expected[-2400:].any()
    engine = SplitEngine(weightless(paused), *parts_alone)
    found = samples(asyncio.run(heard(engine, request)))
    assert decibels(found, expected) < -40
    request = replace(request, final_pause=False)  # the others stay
    found = samples(asyncio.run(heard(engine, request)))
    assert decibels(found, expected[:-2400]) < -40
    np.testing.assert_array_equal(samples(list(speak(paused, request))), expected[:-2400])


def test_sessions_share_both_parts_and_nothing_is_left(
    model: Model,
    engine: SplitEngine,
    voice: Voice,
    parts_alone: tuple[LMService, Token2WavService],
) -> None:
    requests = [SpeechRequest(TEXT, voice, seed=seed, stream=True) for seed in range(8)]

    async def run() -> list[list[AudioChunk]]:
        found = await asyncio.gather(*(heard(engine, request) for request in requests))
        await comes_to_rest(parts_alone)
        return found

    for request, found in zip(requests, asyncio.run(run()), strict=True):
        np.testing.assert_allclose(samples(found), samples(list(speak(model, request))), atol=1e-3)


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_leaving_frees_both_parts(
    engine: SplitEngine, voice: Voice, parts_alone: tuple[LMService, Token2WavService], chunks: int
) -> None:
    async def leave() -> None:
        async with aclosing(engine.open(SpeechRequest(LONG, voice, stream=True))) as found:
            for _ in range(chunks):
                await anext(found)
        await comes_to_rest(parts_alone)

    asyncio.run(leave())


def test_cancelling_whoever_listens_frees_both_parts(
    engine: SplitEngine, voice: Voice, parts_alone: tuple[LMService, Token2WavService]
) -> None:
    async def run() -> None:
        for pause in (0.0, 0.005, 0.02, 0.1):
            task = asyncio.create_task(heard(engine, SpeechRequest(LONG, voice, stream=True)))
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await comes_to_rest(parts_alone)

    asyncio.run(run())


def test_what_can_not_be_asked_is_refused(engine: SplitEngine, voice: Voice) -> None:
    for request, complaint in (
        (SpeechRequest("...", voice), "nothing to say"),
        (SpeechRequest(LONG * 8 + "\ud800", voice), "surrogate"),
        (SpeechRequest(iter(["a"]), voice), "text in pieces"),
    ):
        with pytest.raises(InputError, match=complaint):
            asyncio.run(heard(engine, request))


def test_a_long_text_is_planned_as_it_is_spoken(
    engine: SplitEngine, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = SpeechRequest(LONG * 8, voice, stream=True)
    tasks, made = list(engine._plan(request)), list[LMTask]()

    def broken_at(end: int) -> Iterator[LMTask]:
        made.clear()
        for task in tasks[:end]:
            made.append(task)
            yield task
        raise InputError("bad text")

    async def leave() -> None:
        async with aclosing(engine.open(request)) as chunks:
            await anext(chunks)

    monkeypatch.setattr(engine, "_plan", lambda request: broken_at(len(tasks)))
    asyncio.run(leave())
    assert len(made) <= 2 < len(tasks)  # the second one may be under way
    monkeypatch.setattr(engine, "_plan", lambda request: broken_at(2))
    with pytest.raises(InputError, match="bad text"):
        asyncio.run(heard(engine, request))
    assert made == tasks[:2]
