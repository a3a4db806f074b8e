"""Silence before speech: measured, and left out the same way however the speech is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.audio.silence import AUDIBLE, KEPT, WINDOW, SilenceTrim, leading_silence
from cosyserve.contracts import Floats

FAINT = 0.5 * AUDIBLE


def speech(silent: int, loud: int, level: float = 0.3) -> Floats:
    noise = np.random.default_rng(silent + loud).choice([-1, 1], silent + loud).astype(np.float32)
    noise[:silent] *= FAINT
    noise[silent:] *= level
    return noise


def trimmed(signal: Floats, cuts: list[int]) -> Floats:
    trim = SilenceTrim()
    pieces = np.split(signal, sorted(cut % (len(signal) + 1) for cut in cuts))
    parts = [trim.push(p, last=number == len(pieces) - 1) for number, p in enumerate(pieces)]
    return np.concatenate(parts)


@pytest.mark.parametrize("windows", [0, 1, 7, 50])
def test_silence_is_measured_in_windows(windows: int) -> None:
    assert leading_silence(speech(windows * WINDOW, 5000)) == windows * WINDOW
    assert leading_silence(speech(windows * WINDOW + 10, 5000)) == windows * WINDOW


def test_what_is_silent_has_no_beginning() -> None:
    assert leading_silence(speech(5000, 0)) is None
    assert leading_silence(np.zeros(0, np.float32)) is None


@given(
    silent=st.integers(0, 4000),
    loud=st.integers(0, 2000),
    cuts=st.lists(st.integers(0, 6000), max_size=8),
)
def test_a_stream_is_trimmed_as_the_whole(silent: int, loud: int, cuts: list[int]) -> None:
    signal = speech(silent, loud)
    whole = trimmed(signal, [])
    assert np.array_equal(trimmed(signal, cuts), whole)
    assert np.array_equal(whole, signal[len(signal) - len(whole) :])  # its end
    begin = leading_silence(signal)
    assert len(signal) - len(whole) == max(0, (len(signal) if begin is None else begin) - KEPT)


def test_speech_that_begins_at_once_does_not_wait() -> None:
    trim, piece = SilenceTrim(), speech(0, WINDOW + 5)
    assert np.array_equal(trim.push(piece, last=False), piece)
    tail = speech(3 * WINDOW, 0)
    assert trim.push(tail, last=False) is tail  # silence later on is the speaker's


def test_little_is_held_while_nothing_is_heard() -> None:
    trim = SilenceTrim()
    for _ in range(100):
        assert len(trim.push(speech(1000, 0), last=False)) == 0
        assert len(trim._held) <= KEPT + WINDOW + 1000
