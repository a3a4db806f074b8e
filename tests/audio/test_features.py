"""Features and reference resampling against the golden set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import kaldi_fbank, prompt_mel, speaker_fbank, whisper_log_mel
from cosyserve.contracts import Floats
from cosyserve.errors import AudioError
from tests.golden.features_case import features_case

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCES = {"mel24": 1e-4, "logmel16": 2e-4, "fbank16_raw": 5e-3, "fbank16": 5e-3}
RESAMPLING_TOLERANCE = 2e-6


def test_every_golden_output_is_met() -> None:
    golden = dict(np.load(GOLDEN / "features.npz"))
    outputs = features_case({name: golden[name] for name in golden if name.endswith("_i16")})
    assert outputs.keys() == {name for name in golden if not name.endswith("_i16")}
    for name, output in outputs.items():
        assert output.shape == golden[name].shape, name
        tolerance = 0 if name.endswith("_len") else TOLERANCES.get(name, RESAMPLING_TOLERANCE)
        assert np.abs(output - golden[name]).max() <= tolerance, name


@pytest.mark.parametrize(
    ("feature", "shortest", "shape"),
    [
        (prompt_mel, 721, (1, 80)),
        (whisper_log_mel, 201, (128, 1)),
        (kaldi_fbank, 400, (1, 80)),
        (speaker_fbank, 400, (1, 80)),
    ],
)
def test_the_shortest_wave_works_and_a_shorter_one_is_refused(
    feature: Callable[[Floats], Floats], shortest: int, shape: tuple[int, int]
) -> None:
    wave = np.sin(np.arange(shortest, dtype=np.float32))
    result = feature(wave)
    assert result.shape == shape
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    with pytest.raises(AudioError, match=f"at least {shortest}"):
        feature(wave[1:])
    with pytest.raises(AudioError, match="mono"):
        feature(wave[None])


@pytest.mark.parametrize("length", [959, 960, 4800, 4801])
def test_frame_counts(length: int) -> None:
    wave = np.zeros(length, np.float32)
    assert prompt_mel(wave).shape == (length // 480, 80)
    assert whisper_log_mel(wave).shape == (128, length // 160)
    assert kaldi_fbank(wave).shape == (1 + (length - 400) // 160, 80)


def test_silence_is_finite() -> None:
    for feature in (prompt_mel, whisper_log_mel, kaldi_fbank, speaker_fbank):
        assert np.isfinite(feature(np.zeros(16000, np.float32))).all()


def test_how_long_silence_is_makes_no_difference_where_it_is_left_out() -> None:
    chance = np.random.default_rng(0)
    words = [0.1 * chance.standard_normal(16_000).astype(np.float32) for _ in range(2)]

    def heard(front: int, middle: int, end: int, noise: float = 0.0, **options: bool) -> Floats:
        parts = [np.zeros(160 * n, np.float32) for n in (front, middle, end)]
        wave = np.concatenate([parts[0], words[0], parts[1], words[1], parts[2]])
        hiss = noise * np.random.default_rng(1).standard_normal(len(wave))
        return speaker_fbank(wave + hiss.astype(np.float32), **options)

    np.testing.assert_array_equal(heard(5, 10, 5, silence=False), heard(5, 10, 5))
    short, long = heard(20, 40, 20, silence=False), heard(99, 50, 70, silence=False)
    np.testing.assert_allclose(short, long, atol=1e-5)
    assert len(heard(20, 40, 20)) > len(short) > len(heard(0, 0, 0))
    room = heard(20, 40, 20, noise=5e-4, silence=False)  # 46 dB below the words
    assert len(room) == len(short)


@pytest.mark.parametrize("loudness", [0.0, 0.9])
def test_a_recording_in_which_next_to_nothing_is_heard_stays_as_it_is(loudness: float) -> None:
    wave = np.zeros(16_000, np.float32)
    wave[8_000] = loudness
    np.testing.assert_array_equal(speaker_fbank(wave, silence=False), speaker_fbank(wave))


def test_what_a_microphone_bumps_against_is_not_the_voice() -> None:
    wave = 0.004 * np.random.default_rng(0).standard_normal(5 * 16_000).astype(np.float32)
    for second in (1, 2, 4):
        wave[16_000 * second :][:160] *= 200
    np.testing.assert_array_equal(speaker_fbank(wave, silence=False), speaker_fbank(wave))
