"""The watermark: the same however speech is cut, no sound of its own, found by its key alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.audio.resample import resample
from cosyserve.audio.watermark import FIRST_LAG, LAGS, LEVEL, Watermark, WatermarkStream
from cosyserve.audio.watermark_detector import FALSE_POSITIVES, detect, judge, listen
from cosyserve.contracts import SAMPLE_RATE, Floats

KEY = Watermark.of("a key that nobody knows")
SECONDS = 4


def spoken(seconds: float, seed: int = 0) -> Floats:
    """Something like speech: syllables of a gliding pitch or of noise, in changing resonances."""
    draw = np.random.default_rng(seed)
    size, parts = SAMPLE_RATE // 8, []
    for _ in range(int(8 * seconds)):
        pitch = np.linspace(*draw.uniform(90, 250, 2), size)
        pulses = np.diff(np.cumsum(pitch / SAMPLE_RATE) // 1, prepend=0.0)
        voiced = draw.random() < 0.7
        source = pulses if voiced else 0.1 * draw.standard_normal(size)
        source = source + 0.01 * draw.standard_normal(size)
        hertz = np.fft.rfftfreq(2 * size, 1 / SAMPLE_RATE)
        peaks = draw.uniform((300, 900, 2200, 3500), (800, 2200, 3200, 7000))
        filtered = sum(1 / (1 + ((hertz - peak) / 120) ** 2) for peak in peaks) + 0.01
        shaped = np.fft.irfft(np.fft.rfft(source, 2 * size) * filtered)[:size]
        loudness = np.sin(np.linspace(0.1, np.pi - 0.1, size))
        parts.append(0.2 * loudness * shaped / np.sqrt(np.mean(shaped**2)))
    return np.concatenate(parts).astype(np.float32)


def marked(samples: Floats, watermark: Watermark = KEY) -> Floats:
    return WatermarkStream(watermark).push(samples)


SPEECH = spoken(SECONDS)
MARKED = marked(SPEECH)


@given(st.lists(st.integers(0, 12_000), max_size=6))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    stream, speech = WatermarkStream(KEY), SPEECH[:12_000]
    pieces = [stream.push(piece) for piece in np.split(speech, sorted(cuts))]
    assert [len(piece) for piece in pieces] == [len(p) for p in np.split(speech, sorted(cuts))]
    assert np.array_equal(np.concatenate(pieces), MARKED[:12_000])


def test_it_is_as_faint_as_it_says_and_silence_stays_silent() -> None:
    difference = MARKED - SPEECH
    level = 10 * np.log10(np.mean(difference**2) / np.mean(SPEECH**2))
    assert level == pytest.approx(LEVEL, abs=1.5)
    silence = np.zeros(SAMPLE_RATE, np.float32)
    heard = marked(np.concatenate([silence, SPEECH, silence]))
    assert not heard[:SAMPLE_RATE].any()
    assert not heard[len(silence) + len(SPEECH) + FIRST_LAG + LAGS :].any()


def test_a_key_has_echoes_of_its_own() -> None:
    other = Watermark.of("another key of somebody")
    again = Watermark.of("a key that nobody knows")
    assert np.array_equal(again.signs, KEY.signs)
    assert np.array_equal(again.lags, KEY.lags)
    assert abs(int(other.signs @ KEY.signs)) < 80  # 5 standard deviations
    assert not detect(other, MARKED, SAMPLE_RATE).marked
    assert not detect(KEY, marked(SPEECH, other), SAMPLE_RATE).marked
    both = marked(MARKED, other)
    assert detect(KEY, both, SAMPLE_RATE).marked
    assert detect(other, both, SAMPLE_RATE).marked


@pytest.mark.parametrize("audio_format", [AudioFormat.MP3, AudioFormat.OPUS, AudioFormat.AAC])
def test_it_survives_a_codec(audio_format: AudioFormat) -> None:
    for samples, expected in ((MARKED, True), (SPEECH, False)):
        heard = decode(encode(samples, audio_format))
        assert detect(KEY, heard.samples, heard.rate).marked is expected


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_it_survives_another_rate_and_volume(rate: int) -> None:
    heard = resample(0.05 * MARKED, SAMPLE_RATE, rate)
    assert detect(KEY, heard, rate).marked


@pytest.mark.parametrize("begin", [1, 6_543, 20_001])
def test_it_survives_a_cut(begin: int) -> None:
    assert detect(KEY, MARKED[begin : begin + 3 * SAMPLE_RATE], SAMPLE_RATE).marked


def test_a_part_of_a_long_recording_is_found() -> None:
    long = spoken(40, seed=1)
    assert not detect(KEY, long, SAMPLE_RATE).marked
    part = slice(21 * SAMPLE_RATE, 29 * SAMPLE_RATE)
    long[part] = marked(long[part])
    assert detect(KEY, long, SAMPLE_RATE).marked


def test_chance_finds_no_more_than_it_says() -> None:
    """Keys are drawn at will, so that the share of each score is that of any recording."""
    cepstra = listen(SPEECH, SAMPLE_RATE)
    found = [judge(Watermark.of(f"a key of chance, {n}"), cepstra) for n in range(2000)]
    for share in (0.5, 0.1, 0.01):
        assert np.mean([each.false_positives <= share for each in found]) <= share
    assert not any(each.marked for each in found)
    assert np.std([each.score for each in found]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("samples", [0, 1, 4095, SAMPLE_RATE])
@pytest.mark.parametrize("rate", [8_000, SAMPLE_RATE])
def test_where_nothing_is_heard_nothing_is_found(samples: int, rate: int) -> None:
    nothing = detect(KEY, np.zeros(samples, np.float32), rate)
    assert (nothing.score, nothing.false_positives, nothing.marked) == (0.0, 1.0, False)


def test_the_verdict_is_the_stated_rate() -> None:
    found = detect(KEY, MARKED, SAMPLE_RATE)
    assert found.marked
    assert found.false_positives <= FALSE_POSITIVES
    assert found.false_positives == pytest.approx(np.exp(-(found.score**2) / 2))
