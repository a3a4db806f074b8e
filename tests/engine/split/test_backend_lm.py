"""An LM elsewhere under the scheduler: the same speech, failures alone, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest

from cosyserve.backends.protocols import LMBackend, LMRequest, SpeechTokens
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import MODULES
from cosyserve.contracts import AudioChunk, Floats, Mode, SpeechRequest, Voice
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.speak import speak
from cosyserve.engine.split.lm_service import LMService
from cosyserve.errors import CosyError, LLMServerError, OverloadError, WorkerError
from tests.decibels import decibels

TEXT = "The quick brown fox jumps over the lazy dog."
LONG = f"{TEXT} And it does so once more, as it has done before. {TEXT}"


@pytest.fixture(scope="module")
def without_lm() -> Model:
    model = load_model("test", device="cpu", only=[part for part in MODULES if part != "lm"])
    assert model.lm is None
    return model


class Watched:
    """A backend whose streams are counted, and fail where the text says so."""

    def __init__(self, lm: LMBackend, failures: dict[int, Exception | None]) -> None:
        """`failures` by seed come after three tokens; None is an end without a finish."""
        self.lm, self.failures, self.open, self.asked = lm, failures, 0, 0

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        self.open += 1
        self.asked += 1
        try:
            if request.seed in self.failures:
                yield SpeechTokens((1, 2, 3))
                if failure := self.failures[request.seed]:
                    raise failure
                return
            async with aclosing(self.lm.generate(request)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.open -= 1

    async def close(self) -> None:
        await self.lm.close()


class Endless(Watched):
    """Its streams end when they are left, and not before."""

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        self.open += 1
        try:
            while True:
                yield SpeechTokens((len(request.text),))
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1


def told(
    model: Model,
    without_lm: Model,
    story: Callable[[LocalEngine, Watched], Awaitable[None]],
    failures: dict[int, Exception | None] | None = None,
    backend: type[Watched] = Watched,
) -> None:
    async def run() -> None:
        lm = backend(LMService(model.need_lm()[0], slots=4), failures or {})
        engine = LocalEngine(without_lm, lm, slots=4)
        try:
            await story(engine, lm)
            await at_rest(engine, lm)
        finally:
            await engine.close()

    asyncio.run(run())


async def at_rest(engine: LocalEngine, lm: Watched) -> None:
    scheduler = engine._loop.scheduler
    for _ in range(500):
        if scheduler.idle and not lm.open:
            assert not scheduler.lm.rows
            assert not scheduler.lm._streams  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something is still held")


async def heard(chunks: AsyncIterator[AudioChunk]) -> list[AudioChunk]:
    return [chunk async for chunk in chunks]


def samples(chunks: list[AudioChunk]) -> Floats:
    return np.concatenate([chunk.samples for chunk in chunks])


@pytest.mark.parametrize("stream", [True, False])
def test_the_speech_is_the_engines_own(
    either_model: Model, either_voice: Voice, stream: bool
) -> None:
    requests = [SpeechRequest(LONG, either_voice, seed=7, stream=stream)]
    requests += [SpeechRequest(TEXT, either_voice, seed=seed, stream=stream) for seed in range(2)]

    async def story(engine: LocalEngine, lm: Watched) -> None:
        found = await asyncio.gather(*(heard(engine.open(request)) for request in requests))
        for request, chunks in zip(requests, found, strict=True):
            expected = list(speak(either_model, request))
            assert sum(c.tokens for c in chunks) == sum(c.tokens for c in expected)
            assert chunks[-1].finish == expected[-1].finish
            assert sum(c.text_tokens for c in chunks) == sum(c.text_tokens for c in expected)
            assert decibels(samples(chunks), samples(expected)) < -40

    told(either_model, replace(either_model, lm=None), story)


def test_text_in_pieces_is_asked_for_by_sentence(
    model: Model, without_lm: Model, voice: Voice
) -> None:
    async def pieces() -> AsyncIterator[str]:
        for word in f"{TEXT} {TEXT}".split(" "):
            yield f"{word} "

    async def story(engine: LocalEngine, lm: Watched) -> None:
        assert not engine.model.takes_pieces
        chunks = await heard(engine.open(SpeechRequest(pieces(), voice, stream=True)))
        assert chunks[-1].finish == "stop"
        assert lm.asked == 2

    told(model, without_lm, story)


def test_conversion_needs_no_lm(model: Model, without_lm: Model, voice: Voice) -> None:
    source = 0.1 * np.random.default_rng(1).standard_normal(16_000).astype(np.float32)
    request = SpeechRequest("", voice, Mode.CONVERT, source=source)

    async def story(engine: LocalEngine, lm: Watched) -> None:
        found = samples(await heard(engine.open(request)))
        np.testing.assert_allclose(found, samples(list(speak(model, request))), atol=1e-3)
        assert lm.asked == 0

    told(model, without_lm, story)


def test_a_failure_is_told_to_its_own_session_alone(
    model: Model, without_lm: Model, voice: Voice
) -> None:
    failures = {
        90: OverloadError("full", 3.0),
        91: WorkerError("gone"),
        92: LLMServerError("no speech"),
        93: ZeroDivisionError("secret"),
        94: None,
    }
    told_of = [
        (OverloadError, "full"),
        (WorkerError, "gone"),
        (LLMServerError, "no speech"),
        (CosyError, "internal error, see the log"),
        (WorkerError, "the speech LM left in the middle of the speech"),
    ]

    async def story(engine: LocalEngine, lm: Watched) -> None:
        asked = [SpeechRequest(TEXT, voice, seed=seed, stream=True) for seed in (1, *failures)]
        spoken, *failed = await asyncio.gather(
            *(heard(engine.open(request)) for request in asked), return_exceptions=True
        )
        assert [(type(error), str(error)) for error in failed] == told_of
        assert isinstance(spoken, list)
        assert spoken[-1].finish == "stop"

    told(model, without_lm, story, failures)


@pytest.mark.parametrize("chunks", [0, 1])
def test_whoever_leaves_ends_the_stream(
    model: Model, without_lm: Model, voice: Voice, chunks: int
) -> None:
    async def story(engine: LocalEngine, lm: Watched) -> None:
        async with aclosing(engine.open(SpeechRequest(LONG, voice, stream=True))) as found:
            for _ in range(chunks):
                await anext(found)
        task = asyncio.create_task(heard(engine.open(SpeechRequest(LONG, voice))))
        while not lm.open:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])

    told(model, without_lm, story, backend=Endless)


def test_the_loop_sleeps_while_no_token_comes(
    model: Model, without_lm: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    step = Scheduler.step

    def counted(scheduler: Scheduler) -> bool:
        nonlocal steps
        steps += 1
        return step(scheduler)

    monkeypatch.setattr(Scheduler, "step", counted)

    class Silent(Watched):
        async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
            await asyncio.sleep(0.5)
            yield SpeechTokens((1, 2, 3, 4), "stop")

    async def run() -> None:
        engine = LocalEngine(without_lm, Silent(LMService(model.need_lm()[0]), {}), slots=1)
        try:
            (chunk,) = await heard(engine.open(SpeechRequest(TEXT, voice)))
            assert chunk.tokens == 4
        finally:
            await engine.close()

    asyncio.run(run())
    assert steps < 20
