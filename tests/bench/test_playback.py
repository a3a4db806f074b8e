"""What a listener hears, for all streams."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.bench.playback import (
    CHUNK_PAUSE,
    Arrival,
    chunk_times,
    heard_at,
    heard_by,
    worst_underrun,
)

gaps = st.floats(0, 5)
seconds = st.floats(0.001, 5)
streams = st.lists(st.tuples(gaps, seconds), min_size=1, max_size=20).map(
    lambda pieces: [
        Arrival(sum(gap for gap, _ in pieces[: n + 1]), audio)
        for n, (_, audio) in enumerate(pieces)
    ]
)


def test_one_late_piece_is_heard_as_long_as_it_is_late() -> None:
    arrivals = [Arrival(1.0, 0.5), Arrival(1.4, 0.5), Arrival(2.3, 0.5)]
    assert worst_underrun(arrivals) == pytest.approx(0.3)


def test_a_silence_moves_all_that_is_played_later() -> None:
    # The second piece is 1 s late and plays until 3.0: the third is in time only because of that.
    assert worst_underrun([Arrival(0, 1), Arrival(2, 1), Arrival(3, 1)]) == pytest.approx(1.0)


def test_nothing_is_no_underrun() -> None:
    assert worst_underrun([]) == 0
    assert chunk_times([]) == []


@given(streams)
@settings(deadline=None, max_examples=50)
def test_an_underrun_is_never_longer_than_a_pause_between_pieces(stream: list[Arrival]) -> None:
    pauses = [b.at - a.at for a, b in pairwise(stream)]
    assert 0 <= worst_underrun(stream) <= max(pauses, default=0)


@given(streams, st.floats(0, 100))
@settings(deadline=None, max_examples=50)
def test_a_later_start_changes_nothing(stream: list[Arrival], delay: float) -> None:
    later = [Arrival(at + delay, audio) for at, audio in stream]
    assert worst_underrun(later) == pytest.approx(worst_underrun(stream), abs=1e-9)


@given(streams)
@settings(deadline=None, max_examples=50)
def test_enough_audio_at_first_never_starves(stream: list[Arrival]) -> None:
    first = Arrival(stream[0].at, stream[-1].at + 1)
    assert worst_underrun([first, *stream[1:]]) == 0


@given(streams, st.integers(2, 5))
@settings(deadline=None, max_examples=50)
def test_pieces_of_a_chunk_are_one_chunk(stream: list[Arrival], parts: int) -> None:
    split = [Arrival(at, audio / parts) for at, audio in stream for _ in range(parts)]
    assert chunk_times(split) == chunk_times(stream)
    assert worst_underrun(split) == pytest.approx(worst_underrun(stream), abs=1e-9)


@given(streams)
@settings(deadline=None, max_examples=50)
def test_chunks_begin_with_a_pause(stream: list[Arrival]) -> None:
    times = chunk_times(stream)
    assert times[0] == stream[0].at
    assert all(b - a >= CHUNK_PAUSE for a, b in pairwise(times))


@pytest.mark.parametrize(
    ("seconds", "heard"),
    [(0.0, 0.3), (0.1, 0.4), (0.25, 1.0), (0.45, 1.2), (0.5, 1.25)],
)
def test_when_something_is_heard(seconds: float, heard: float) -> None:
    arrivals = [Arrival(0.3, 0.25), Arrival(1.0, 0.25)]  # the second comes too late
    assert heard_at(arrivals, seconds) == pytest.approx(heard)


def test_what_was_played_at_a_moment() -> None:
    arrivals = [Arrival(1.0, 0.5), Arrival(1.1, 0.5), Arrival(3.0, 1.0)]
    moments = {0.5: 0.0, 1.25: 0.25, 2.0: 1.0, 2.9: 1.0, 3.5: 1.5, 9.0: 2.0}
    for moment, seconds in moments.items():
        assert heard_by(arrivals, moment) == pytest.approx(seconds)
    assert heard_by([], 1.0) == 0.0
