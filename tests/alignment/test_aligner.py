"""Laws of the times of words, whatever is said and however it comes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.alignment.aligner import SURE, Aligner, WordTime
from cosyserve.alignment.listener import BLOCK, FRAME, MARGIN, Listener
from cosyserve.alignment.path import REACH
from cosyserve.contracts import SAMPLE_RATE, Floats

LATEST = (SURE + 2 * BLOCK + MARGIN) * FRAME / SAMPLE_RATE  # seconds until a word is told
TEXTS = st.lists(
    st.sampled_from(["Hello,", "world.", "a", "seventeen", "2024", "你好。", "naïve", "x" * 300]),
    min_size=1,
    max_size=12,
).map(" ".join)


def noise(seconds: float, seed: int) -> Floats:
    """Something as loud as speech, with pauses."""
    draw = np.random.default_rng(seed)
    samples = draw.standard_normal(int(seconds * SAMPLE_RATE))
    loud = np.repeat(draw.random(len(samples) // 2400 + 1) > 0.3, 2400)[: len(samples)]
    return np.asarray(0.1 * samples * loud, np.float32)


def aligned(text: str, chunks: list[Floats], *, cut: bool = False) -> list[WordTime]:
    aligner = Aligner()
    aligner.push_text(text)
    aligner.end_text()
    told = [word for chunk in chunks for word in aligner.push(chunk)]
    return told + aligner.finish(cut=cut)


def in_chunks(samples: Floats, cuts: list[float]) -> list[Floats]:
    return np.split(samples, sorted(int(cut * len(samples)) for cut in cuts))


@given(
    TEXTS,
    st.floats(0, 2.5),
    st.integers(0, 9),
    st.lists(st.floats(0, 1), max_size=4),
)
@settings(max_examples=25)
def test_every_word_is_told_once_and_in_order(
    text: str, seconds: float, seed: int, cuts: list[float]
) -> None:
    samples = noise(seconds, seed)
    told = aligned(text, in_chunks(samples, cuts))
    assert told == aligned(text, [samples])  # chunks make no difference at all
    assert "".join(word.word for word in told) == text.replace(" ", "")
    times = [time for word in told for time in (word.start, word.end)]
    assert all(before <= after for before, after in pairwise(times))
    assert times[0] >= 0
    assert times[-1] <= len(samples) / SAMPLE_RATE + 0.001


@given(TEXTS, st.floats(0.2, 2.5), st.integers(0, 9), st.floats(0, 1))
@settings(max_examples=15)
def test_what_was_not_reached_is_not_told(
    text: str, seconds: float, seed: int, share: float
) -> None:
    samples = noise(seconds, seed)
    part = samples[: int(share * len(samples))]
    told = aligned(text, [part], cut=True)
    words = [word.word for word in aligned(text, [samples])]
    assert [word.word for word in told] == words[: len(told)]
    assert all(word.end <= len(part) / SAMPLE_RATE + 0.001 for word in told)
    assert not aligned(text, [], cut=True)


def test_a_text_that_nobody_could_say_in_the_time_is_told_at_its_end() -> None:
    text = " ".join(["extraordinary"] * REACH)
    told = aligned(text, [noise(1.0, 0)])
    assert len(told) == REACH
    assert told[-1].end == pytest.approx(1.0)


def test_text_in_pieces_is_told_as_the_whole_if_it_comes_before_its_speech() -> None:
    samples, text = noise(3.0, 1), "One two three, four five."
    aligner = Aligner()
    for piece in ("One tw", "o three, four ", "five."):
        aligner.push_text(piece)
    told = aligner.push(samples[:24_000])
    aligner.end_text()
    told += aligner.push(samples[24_000:]) + aligner.finish()
    assert [word.word for word in told] == text.split()


def test_the_last_word_of_a_text_waits_for_its_marks() -> None:
    aligner = Aligner()
    aligner.push_text("好")
    told = aligner.push(noise(1.5, 2))
    assert told == []
    aligner.push_text("！")
    aligner.end_text()
    assert [word.word for word in aligner.push(noise(1.5, 3)) + aligner.finish()] == ["好！"]


def test_frames_do_not_depend_on_chunks_and_cover_the_speech() -> None:
    samples = noise(1.23, 4)
    whole = Listener()
    frames = np.concatenate([whole.push(samples), whole.finish()])
    assert len(frames) == -(-len(samples) // FRAME)
    pieces = Listener()
    parts = [pieces.push(samples[at : at + 777]) for at in range(0, len(samples), 777)]
    np.testing.assert_array_equal(np.concatenate([*parts, pieces.finish()]), frames)


def test_samples_that_are_not_numbers_are_silence() -> None:
    assert len(aligned("Hello there.", [np.full(24_000, np.nan, np.float32)])) == 2
