"""Text that arrives piece by piece, in this process and through a worker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Engine, Mode, SpeechRequest, Voice
from cosyserve.engine import text_stream
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.scheduling import admission
from cosyserve.engine.speak import speak
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import InputError, WorkerError

WORDS = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog."]


class Speaker(NamedTuple):
    engine: Engine
    model: Model  # that the engine runs
    voice: Voice


Story = Callable[[Speaker], Awaitable[None]]


async def pieces(*words: str, after: float = 0.0) -> AsyncIterator[str]:
    for word in words:
        await asyncio.sleep(after)
        yield word + " "


def request(speaker: Speaker, text: AsyncIterator[str]) -> SpeechRequest:
    return SpeechRequest(text, speaker.voice, Mode.PRESET, seed=3, stream=True)


async def listen(chunks: AsyncIterator[AudioChunk]) -> list[AudioChunk]:
    return [chunk async for chunk in chunks]


async def at_rest(engine: Engine) -> None:
    async with asyncio.timeout(5):
        while engine.stats().running or engine.stats().waiting:
            await asyncio.sleep(0.01)


async def spoken_as_it_arrives(speaker: Speaker) -> None:
    sent: list[int] = []

    async def slowly() -> AsyncIterator[str]:
        for number, word in enumerate(WORDS * 6):
            sent.append(number)
            yield word + " "
            await asyncio.sleep(0.02)

    chunks = speaker.engine.open(request(speaker, slowly()))
    first = await anext(chunks)
    assert len(sent) < 6 * len(WORDS)
    rest = await listen(chunks)
    assert rest[-1].finish in ("stop", "length")
    assert sum(chunk.text_tokens for chunk in [first, *rest]) > 100
    assert first.index == 0


async def is_what_one_hears_alone(speaker: Speaker) -> None:
    whole = (word + " " for word in WORDS)
    asked = SpeechRequest(whole, speaker.voice, Mode.PRESET, seed=3, stream=True)
    alone = np.concatenate([chunk.samples for chunk in speak(speaker.model, asked)])
    heard = await listen(speaker.engine.open(request(speaker, pieces(*WORDS))))
    np.testing.assert_allclose(np.concatenate([chunk.samples for chunk in heard]), alone, atol=1e-3)


async def reads_numbers_as_in_a_whole_text(speaker: Speaker) -> None:
    async def cut() -> AsyncIterator[str]:
        for piece in ("I am the 3", "rd of 1", ",250"):
            yield piece

    heard = await listen(speaker.engine.open(request(speaker, cut())))
    words = SpeechRequest(
        "I am the third of one thousand two hundred and fifty.", speaker.voice, Mode.PRESET, seed=3
    )
    alone = speak(speaker.model, words)
    assert sum(c.text_tokens for c in heard) == sum(c.text_tokens for c in alone)


async def ends_when_its_listener_leaves(speaker: Speaker) -> None:
    closed = asyncio.Event()

    async def silent() -> AsyncIterator[str]:
        try:
            yield "One "
            await asyncio.sleep(60)
        finally:
            closed.set()

    chunks = speaker.engine.open(request(speaker, silent()))
    task = asyncio.create_task(anext(chunks))
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.wait([task])
    await chunks.aclose()
    assert closed.is_set()
    await at_rest(speaker.engine)


async def tells_what_its_producer_raises(speaker: Speaker) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One "
        raise KeyError("the producer's own")

    with pytest.raises(KeyError, match="producer's own"):
        await listen(speaker.engine.open(request(speaker, broken())))
    await at_rest(speaker.engine)


async def may_be_nothing(speaker: Speaker) -> None:
    chunks = await listen(speaker.engine.open(request(speaker, pieces())))
    assert chunks[-1].finish in ("stop", "length")
    await at_rest(speaker.engine)


async def must_be_asynchronous(speaker: Speaker) -> None:
    with pytest.raises(InputError, match="asynchronous"):
        await listen(speaker.engine.open(request(speaker, iter(WORDS))))  # type: ignore[arg-type]
    await at_rest(speaker.engine)


async def refuses_special_tokens(speaker: Speaker) -> None:
    with pytest.raises(InputError, match="tokens"):
        await listen(speaker.engine.open(request(speaker, pieces(*["many more words"] * 400))))
    await at_rest(speaker.engine)


STORIES = (
    spoken_as_it_arrives,
    is_what_one_hears_alone,
    reads_numbers_as_in_a_whole_text,
    ends_when_its_listener_leaves,
    tells_what_its_producer_raises,
    may_be_nothing,
    must_be_asynchronous,
    refuses_special_tokens,
)


def test_a_text_that_comes_to_a_halt_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "HALT_SECONDS", 0.05)
    pushed: list[str] = []

    async def slow() -> AsyncIterator[str]:
        yield "They won 3"
        await asyncio.sleep(0.2)
        yield ""
        yield " times"

    async def run() -> None:
        ended = asyncio.Event()
        async with text_stream.feeding(slow(), pushed.append, ended.set, pytest.fail):
            await ended.wait()

    asyncio.run(run())
    assert pushed == ["They won 3", "", " times"]


def test_in_this_process(either_model: Model, either_voice: Voice) -> None:
    async def run() -> None:
        engine = LocalEngine(either_model, slots=2)
        for story in STORIES:
            await story(Speaker(engine, either_model, either_voice))
        await engine.close()

    asyncio.run(run())


def test_a_text_that_stalls_holds_up_nobody(
    model: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one slot, and in the end it has said what it says alone."""
    monkeypatch.setattr(admission, "STALL_SECONDS", 0.0)

    async def run() -> None:
        engine = LocalEngine(model, slots=1)
        speaker, others = Speaker(engine, model, voice), asyncio.Event()

        async def stalling() -> AsyncIterator[str]:
            yield "The quick brown "
            await others.wait()
            yield "fox "

        stalled = asyncio.create_task(listen(engine.open(request(speaker, stalling()))))
        async with asyncio.timeout(5):
            while not engine.stats().tokens:
                await asyncio.sleep(0.01)
        asked = SpeechRequest("No.", voice, Mode.PRESET, seed=3, stream=True)
        assert (await listen(engine.open(asked)))[-1].final
        assert engine.stats().waiting == 1
        others.set()
        heard = np.concatenate([chunk.samples for chunk in await stalled])
        chunks = await listen(engine.open(request(speaker, pieces("The quick brown", "fox"))))
        alone = np.concatenate([chunk.samples for chunk in chunks])
        np.testing.assert_allclose(heard, alone, atol=1e-3)
        await at_rest(engine)
        await engine.close()

    asyncio.run(run())


@pytest.mark.usefixtures("forked")
def test_through_a_worker(
    either_model: Model, either_voice: Voice, cosyvoice3_folder: Path
) -> None:
    folder = str(cosyvoice3_folder) if either_model.config.family == "cosyvoice3" else "test"

    async def run() -> None:
        engine = WorkerEngine(WorkerOptions(folder, device="cpu", threads=1, slots=2))
        await engine.start()
        speaker = Speaker(engine, either_model, either_voice)
        try:
            for story in STORIES:
                await story(speaker)
            chunks = engine.open(request(speaker, pieces("One", after=0.3)))
            waiting = asyncio.create_task(listen(chunks))
            await asyncio.sleep(0.1)
            os.kill(engine.pid, signal.SIGKILL)
            with pytest.raises(WorkerError):
                await waiting
        finally:
            await engine.close()

    asyncio.run(run())
