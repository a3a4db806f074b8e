"""Resampling: lengths, pitch, and a result that doesn't depend on how a stream is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.audio import StreamResampler, resample
from cosyserve.errors import AudioError

RATES = [8000, 16000, 22050, 24000, 44100, 48000]


def sine(rate: int, seconds: float = 0.5, hertz: float = 440.0) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize("from_rate", [8000, 11025, 44101, 191999])
@pytest.mark.parametrize("to_rate", [16000, 24000])
def test_a_sine_stays_the_same_sine(from_rate: int, to_rate: int) -> None:
    out = resample(sine(from_rate), from_rate, to_rate)
    assert out.dtype == np.float32
    middle = slice(500, 5000)
    assert np.abs(out[middle] - sine(to_rate)[middle]).max() < 5e-3


@given(
    length=st.integers(0, 3000), from_rate=st.sampled_from(RATES), to_rate=st.sampled_from(RATES)
)
@settings(max_examples=40, deadline=None)
def test_both_resamplers_agree_on_the_length(length: int, from_rate: int, to_rate: int) -> None:
    samples = np.full(length, 0.5, np.float32)
    expected = -(-length * to_rate // from_rate)
    assert len(resample(samples, from_rate, to_rate)) == expected
    assert len(StreamResampler(from_rate, to_rate).push(samples, last=True)) == expected


@given(cuts=st.lists(st.integers(0, 12_000), max_size=12), to_rate=st.sampled_from(RATES))
@settings(max_examples=30, deadline=None)
def test_cutting_a_stream_changes_nothing(cuts: list[int], to_rate: int) -> None:
    samples = np.random.default_rng(1).uniform(-1, 1, 12_000).astype(np.float32)
    whole = StreamResampler(24000, to_rate).push(samples, last=True)
    stream = StreamResampler(24000, to_rate)
    pieces = [stream.push(piece) for piece in np.split(samples, sorted(cuts))]
    pieces.append(stream.push(np.zeros(0, np.float32), last=True))
    streamed = np.concatenate(pieces)
    assert len(streamed) == len(whole)
    assert np.abs(streamed - whole).max() < 1e-4


def test_the_blocks_of_a_long_signal_meet_without_a_seam() -> None:
    whole = resample(sine(16000, seconds=5), 16000, 24000)
    assert np.abs(whole[500:-500] - sine(24000, seconds=5)[500:-500]).max() < 5e-3


@pytest.mark.parametrize("rates", [(0, 16000), (16000, 0), (-1, 8000)])
def test_rates_must_be_positive(rates: tuple[int, int]) -> None:
    with pytest.raises(AudioError, match="positive"):
        resample(np.zeros(10, np.float32), *rates)
    with pytest.raises(AudioError, match="positive"):
        StreamResampler(*rates)
