"""Speech that ends long before its text: drawn once more where nobody heard it, else told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.contracts import AudioChunk, FinishReason, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import CosyError
from cosyserve.text.numbers import Reader
from tests.engine.mocks import CONFIG, VOICE, CountingLM, Humming, mock_scheduler

Heard = list[AudioChunk | CosyError]
FIRST_CHUNK = 25 + 3  # tokens that the first chunk of a stream is made of


def plan(asked: SpeechRequest, read: Reader, device: int) -> list[Utterance]:
    """'30>100@60+50' is two utterances: the LM draws 30 tokens for the first, and 100 when it is
    asked again, where at least 60 are expected; and 50 for the second."""
    assert isinstance(asked.text, str)

    def utterance(number: int, part: str) -> Utterance:
        sizes, _, least = part.partition("@")

        def generate(attempt: int) -> Generation:
            size = int(sizes.split(">")[attempt])
            return Generation(WholeText(CONFIG, [0] * size, 0), attempt, asked.sampling, 10_000)

        return Utterance(
            generate,
            Humming(str(asked.text)),  # type: ignore[arg-type]
            stream=asked.stream,
            text_tokens=10,
            least_tokens=int(least or 0),
            follows=number > 0,
        )

    return [utterance(number, part) for number, part in enumerate(asked.text.split("+"))]


def scripted(slots: int = 4) -> tuple[Scheduler, CountingLM]:
    scheduler, _, lm, _ = mock_scheduler(slots=slots, waiting=20)
    scheduler.plan = plan
    return scheduler, lm


def run(scheduler: Scheduler) -> None:
    for _ in range(10_000):
        if not scheduler.step():
            scheduler.check_idle()
            return
    raise AssertionError("never at rest")


def outcome(heard: Heard) -> tuple[int, int, FinishReason | None]:
    """Tokens, retries and the finish reason of a speech without gaps."""
    chunks = [chunk for chunk in heard if isinstance(chunk, AudioChunk)]
    assert len(chunks) == len(heard)
    tokens = sum(chunk.tokens for chunk in chunks)
    assert sum(len(chunk.samples) for chunk in chunks) == 960 * tokens
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return tokens, sum(chunk.retries for chunk in chunks), chunks[-1].finish


def spoken(text: str, *, stream: bool) -> tuple[int, int, FinishReason | None]:
    scheduler, _ = scripted()
    heard: Heard = []
    scheduler.open(SpeechRequest(text, VOICE, stream=stream), heard.append)
    run(scheduler)
    return outcome(heard)


@pytest.mark.parametrize(
    ("text", "stream", "expected"),
    [
        ("60@60", False, (60, 0, "stop")),
        ("59>100@60", False, (100, 1, "stop")),
        ("30>40@60", False, (40, 1, "early")),  # an end that stays is told, and spoken
        ("50>40@60", False, (50, 1, "early")),  # the longer one
        ("20>10@60", True, (20, 1, "early")),
        ("50+59>30@60", True, (109, 1, "early")),
        ("0>100@60", False, (100, 1, "stop")),
        (f"{FIRST_CHUNK - 1}>100@60", True, (100, 1, "stop")),
        (f"{FIRST_CHUNK}>100@60", True, (FIRST_CHUNK, 0, "early")),  # a chunk may be on its way
        ("50+59>100@60+70", False, (220, 1, "stop")),
        ("50+59>100@60+70", True, (220, 1, "stop")),  # nothing is heard of a later one before
        ("50+59>100@60+9>9@60", True, (159, 2, "early")),
        ("40>1@60+50", True, (90, 0, "early")),  # also of an utterance that is not the last
    ],
)
def test_how_it_is_spoken(text: str, stream: bool, expected: tuple[int, int, str]) -> None:
    assert spoken(text, stream=stream) == expected


def test_a_later_utterance_of_a_stream_is_begun_when_it_is_long_enough() -> None:
    scheduler, _ = scripted()
    heard: Heard = []
    session = scheduler.open(SpeechRequest("5+200@110", VOICE, stream=True), heard.append)
    while len(heard) < 2:
        scheduler.step()
    first, second = heard
    assert isinstance(first, AudioChunk)
    assert isinstance(second, AudioChunk)
    assert (first.tokens, second.tokens) == (5, 125)  # 107 are on the grid, and too few
    scheduler.cancel(session)
    scheduler.check_idle()


PARTS = st.builds(
    lambda first, second, least: f"{first}>{second}@{least}",
    st.integers(1, 80),
    st.integers(1, 150),
    st.integers(0, 100),
)
TEXTS = st.lists(PARTS, min_size=1, max_size=3).map("+".join)


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.integers(0, 30)), min_size=1, max_size=6))
def test_company_changes_nothing(clients: list[tuple[str, bool, int]]) -> None:
    """Whoever comes when, beside whom, and is drawn again or not."""
    scheduler, _ = scripted(slots=2)
    heard: list[Heard] = [[] for _ in clients]
    for step in range(31):
        for (text, stream, arrives), sink in zip(clients, heard, strict=True):
            if arrives == step:
                scheduler.open(SpeechRequest(text, VOICE, stream=stream), sink.append)
        scheduler.step()
    run(scheduler)
    for (text, stream, _), found in zip(clients, heard, strict=True):
        assert outcome(found) == spoken(text, stream=stream)


@given(TEXTS, st.booleans(), st.integers(0, 200))
def test_leaving_at_any_time_frees_all(text: str, stream: bool, steps: int) -> None:
    scheduler, lm = scripted()
    session = scheduler.open(SpeechRequest(text, VOICE, stream=stream), lambda _: None)
    for _ in range(steps):
        scheduler.step()
    scheduler.cancel(session)
    run(scheduler)
    assert lm.rows == []


def test_text_and_retries_are_told_once_and_early() -> None:
    """A listener who leaves in the middle, or may hear no more, has been told of the text."""
    scheduler, _ = scripted()
    heard: Heard = []
    text = "50+59>100@60+70"
    scheduler.open(SpeechRequest(text, VOICE, stream=True), heard.append)
    run(scheduler)
    told = [(chunk.text_tokens, chunk.retries) for chunk in heard if isinstance(chunk, AudioChunk)]
    assert [tokens for tokens, _ in told] == [30] + [0] * (len(told) - 1)
    assert sum(retries for _, retries in told) == 1
