"""Speech that fails or ends too soon, from an LM and a token2wav by script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Mode, SpeechRequest, Voice
from cosyserve.engine.split import pipeline
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.errors import CosyError, OverloadError, WorkerError
from tests.engine.split.listening import heard, weightless
from tests.engine.split.test_pipeline import LONG, TEXT

SPOKEN = [SpeechTokens((1, 2, 3)), SpeechTokens((4,), "stop")]


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
    model: Model, voice: Voice, answers: list[list[SpeechTokens]], loud: list[float]
) -> None:
    lm, token2wav = ScriptedLM(*answers), ScriptedToken2Wav(*loud)
    engine = SplitEngine(weightless(model), lm, token2wav)
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
    model: Model,
    voice: Voice,
    answers: list[list[SpeechTokens] | Exception | None],
    error: type[CosyError],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "BACKEND_TIMEOUT", 0.05)
    token2wav = ScriptedToken2Wav(0.0, 0.0)
    engine = SplitEngine(weightless(model), ScriptedLM(*answers), token2wav)
    with pytest.raises(error, match=complaint):
        asyncio.run(heard(engine, SpeechRequest(TEXT, voice)))
    assert token2wav.streams == 0


def speaking(model: Model) -> Model:
    """The model without weights, as if it had learnt to speak: its texts have a length."""
    return replace(weightless(model), config=replace(model.config, speech=True))


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
    model: Model,
    voice: Voice,
    text: str,
    counts: list[int],
    spoken: int | None,
    retries: int,
    finish: str,
    stream: bool,
) -> None:
    engine = SplitEngine(speaking(model), ScriptedLM(), ScriptedToken2Wav(*[0.5] * len(counts)))
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
