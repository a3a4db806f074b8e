"""An LM alone and a token2wav alone, joined: the speech of the engine in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Floats, Mode, SpeechRequest, Voice
from cosyserve.engine.scheduling.lm_requests import LMTask
from cosyserve.engine.speak import speak
from cosyserve.engine.split import pipeline
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.split.token2wav_service import Token2WavService
from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError

TEXT = "The quick brown fox jumps over the lazy dog."
LONG = " ".join(f"{TEXT} And it does so once more, number {n}." for n in ("one", "two"))


def weightless() -> Model:
    return assemble(replace(random_parts(), states={}))


@pytest.fixture(scope="module")
def parts_alone(model: Model) -> Iterator[tuple[LMService, Token2WavService]]:
    lm = LMService(model.need_lm()[0], slots=4, max_waiting=8)
    token2wav = Token2WavService(*model.need_token2wav())
    yield lm, token2wav
    asyncio.run(lm.close())
    asyncio.run(token2wav.close())


@pytest.fixture(scope="module")
def engine(parts_alone: tuple[LMService, Token2WavService]) -> SplitEngine:
    return SplitEngine(weightless(), *parts_alone)


async def heard(engine: SplitEngine, request: SpeechRequest) -> list[AudioChunk]:
    return [chunk async for chunk in engine.open(request)]


def samples(chunks: list[AudioChunk]) -> Floats:
    return np.concatenate([chunk.samples for chunk in chunks])


def at_rest(parts_alone: tuple[LMService, Token2WavService]) -> bool:
    lm, token2wav = parts_alone
    return lm.queue.idle and not lm.queue.lm.rows and token2wav.streams == 0


async def comes_to_rest(parts_alone: tuple[LMService, Token2WavService]) -> None:
    for _ in range(200):
        if at_rest(parts_alone):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something is still held")


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**40),
    st.booleans(),
    st.sampled_from([Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.PRESET]),
    st.sampled_from([1.0, 0.8, 1.5]),
    st.sampled_from([TEXT, LONG]),
)
def test_the_speech_is_that_of_one_process(
    model: Model,
    engine: SplitEngine,
    voice: Voice,
    seed: int,
    stream: bool,
    mode: Mode,
    speed: float,
    text: str,
) -> None:
    request = SpeechRequest(text, voice, mode=mode, seed=seed, speed=speed, stream=stream)
    expected = list(speak(model, request))
    found = asyncio.run(heard(engine, request))
    # How many tokens a later chunk takes depends on how far the LM has run ahead.
    assert [c.index for c in found] == list(range(len(found)))
    assert found[0].tokens == expected[0].tokens
    assert sum(c.tokens for c in found) == sum(c.tokens for c in expected)
    assert sum(c.text_tokens for c in found) == sum(c.text_tokens for c in expected)
    assert found[-1].finish == expected[-1].finish
    np.testing.assert_allclose(samples(found), samples(expected), atol=1e-3)


def test_the_lm_rests_when_its_only_listener_has_a_first_piece(
    parts_alone: tuple[LMService, Token2WavService],
) -> None:
    lm, _ = parts_alone
    paced = LMRequest((5, 6, 7), (), 200, 200, first_chunk=8, chunk=8)

    async def run() -> None:
        pieces = lm.generate(paced)
        await anext(pieces)
        (row,) = lm.queue.lm.rows
        await asyncio.sleep(0.2)
        assert len(row.tokens) == 8
        async for _ in lm.generate(replace(paced, seed=1, min_tokens=20, max_tokens=20)):
            pass
        assert len(row.tokens) > 8  # others' steps take it along
        assert sum([len(piece.ids) async for piece in pieces]) == 200 - 8
        await comes_to_rest(parts_alone)

    asyncio.run(run())


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


def test_a_full_lm_refuses_and_recovers(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=2)

    async def ask() -> int:
        return len([piece async for piece in lm.generate(LMRequest((1,), (), 100, 100))])

    async def run() -> None:
        found = await asyncio.gather(*(ask() for _ in range(5)), return_exceptions=True)
        assert [type(item) for item in found] == [int] * 3 + [OverloadError] * 2
        assert await ask() == 100
        await lm.close()

    asyncio.run(run())


def test_what_the_lm_can_not_take_is_refused(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=1)

    async def ask(request: LMRequest) -> None:
        async with aclosing(lm.generate(request)) as pieces:
            await anext(pieces)

    async def run() -> None:
        for request, complaint in (
            (LMRequest((10**6,), (), 0, 5), "text ids"),
            (LMRequest((1,), (-1,), 0, 5), "speech ids"),
            (LMRequest((1,), (), 0, 10**6), "tokens can follow"),
        ):
            with pytest.raises(InputError, match=complaint):
                await ask(request)
        await ask(LMRequest((1,), (), 0, 5))
        await lm.close()

    asyncio.run(run())


def test_pieces_come_as_they_are_wanted(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=1)

    async def run() -> list[int]:
        request = LMRequest((1, 2, 3), (), 40, 40, first_chunk=13, chunk=10)
        sizes = [len(piece.ids) async for piece in lm.generate(request)]
        await lm.close()
        return sizes

    assert asyncio.run(run()) == [13, 10, 10, 7]


class ScriptedLM:
    """Says what it is told, one answer per request."""

    def __init__(self, *answers: list[SpeechTokens] | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[LMRequest] = []

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.sleep(3600)
        if isinstance(answer, Exception):
            raise answer
        for piece in answer or ():
            yield piece

    async def close(self) -> None: ...


class ScriptedToken2Wav:
    """As loud as it is told, one number per utterance."""

    def __init__(self, *loud: float) -> None:
        self.loud, self.streams = list(loud), 0

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> ScriptedToken2Wav:
        self.streams += 1
        return self

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        return np.full(960 * len(tokens), self.loud[0], np.float32)

    async def close(self) -> None:
        self.streams -= 1
        self.loud.pop(0)


SPOKEN = [SpeechTokens((1, 2, 3)), SpeechTokens((4,), "stop")]


@pytest.mark.parametrize(
    ("answers", "loud"),
    [
        ([[SpeechTokens((), "stop")], SPOKEN], [0.0, 0.5]),
        ([[SpeechTokens((1,), "error")], SPOKEN], [0.0, 0.5]),
        ([[SpeechTokens((1,) * 20, "length")], SPOKEN], [0.0, 0.5]),
        ([SPOKEN, SPOKEN], [0.0, 0.5]),
    ],
    ids=["empty", "nan", "endless", "silent"],
)
def test_a_failed_attempt_is_made_again_with_another_seed(
    voice: Voice, answers: list[list[SpeechTokens]], loud: list[float]
) -> None:
    lm, token2wav = ScriptedLM(*answers), ScriptedToken2Wav(*loud)
    engine = SplitEngine(weightless(), lm, token2wav)
    (chunk,) = asyncio.run(heard(engine, SpeechRequest(TEXT, voice)))
    assert chunk.finish == "stop"
    assert chunk.tokens == 4
    first, second = lm.asked
    assert first.seed != second.seed
    assert token2wav.streams == 0


@pytest.mark.parametrize(
    ("answers", "error", "complaint"),
    [
        ([[SpeechTokens((), "stop")]] * 2, CosyError, "ended before"),
        ([OverloadError("full", 1.0)], OverloadError, "full"),
        ([[SpeechTokens((1,))]], WorkerError, "left in the middle"),
        ([None], WorkerError, "silent for"),
    ],
    ids=["twice", "full", "gone", "stuck"],
)
def test_a_failure_that_stays_is_told_and_nothing_is_held(
    voice: Voice,
    answers: list[list[SpeechTokens] | Exception | None],
    error: type[CosyError],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "BACKEND_TIMEOUT", 0.05)
    token2wav = ScriptedToken2Wav(0.0, 0.0)
    engine = SplitEngine(weightless(), ScriptedLM(*answers), token2wav)
    with pytest.raises(error, match=complaint):
        asyncio.run(heard(engine, SpeechRequest(TEXT, voice)))
    assert token2wav.streams == 0


def speaking() -> Model:
    """The model without weights, as if it had learnt to speak: its texts have a length."""
    parts = random_parts()
    return assemble(replace(parts, states={}, config=replace(parts.config, speech=True)))


def told(*counts: int) -> list[list[SpeechTokens]]:
    """Answers of so many tokens, in pieces of 40."""
    return [
        [
            *(SpeechTokens((1,) * min(40, count - begin)) for begin in range(0, count, 40)),
            SpeechTokens((), "stop"),
        ]
        for count in counts
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "counts", "spoken", "retries", "finish"),
    [
        (TEXT, [5, 200], 200, 1, "stop"),
        (TEXT, [5, 6], 6, 1, "early"),
        (TEXT, [6, 5], 6, 1, "early"),
        (LONG, [400, 30, 400, 400], None, 1, "stop"),
    ],
    ids=["drawn again", "still short", "even shorter", "a later utterance"],
)
def test_an_end_that_comes_too_soon(
    voice: Voice,
    text: str,
    counts: list[int],
    spoken: int | None,
    retries: int,
    finish: str,
    stream: bool,
) -> None:
    model = speaking()
    engine = SplitEngine(model, ScriptedLM(), ScriptedToken2Wav(*[0.5] * len(counts)))
    request = SpeechRequest(text, replace(voice, prompt_text=""), Mode.CROSS_LINGUAL, stream=stream)
    tasks = list(engine._plan(request))
    engine.lm = lm = ScriptedLM(*told(*counts[: len(tasks) + 1]))
    chunks = asyncio.run(heard(engine, request))
    assert sum(chunk.retries for chunk in chunks) == retries
    assert chunks[-1].finish == finish
    assert len({asked.seed for asked in lm.asked}) == len(tasks) + 1
    assert sum(chunk.text_tokens for chunk in chunks) == sum(task.text_tokens for task in tasks)
    if spoken is not None:
        assert sum(chunk.tokens for chunk in chunks) == spoken


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
