"""More speech: who speaks, and what of it is kept."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from training import data, teacher


def test_mixtures_are_mostly_of_one_sex_and_whole() -> None:
    names = ["af_a", "af_b", "af_c", "am_a", "am_b", "am_c"]
    found = teacher.mixtures(names, 200, random.Random(0))
    assert len({speaker.name for speaker in found}) == 200
    assert all(sum(s.parts.values()) == pytest.approx(1) for s in found)
    assert all(2 <= len(s.parts) <= 3 for s in found)
    alike = [len({name[1] for name in s.parts}) == 1 for s in found]
    assert 0.8 < np.mean(alike) < 0.97
    beyond = [min(s.parts.values()) < 0 for s in found]
    assert 0.3 < np.mean(beyond) < 0.5
    assert len(teacher.mixtures(["af_a", "am_b"], 50, random.Random(0))) == 50


def test_a_corpus_of_a_teacher_that_hums(tmp_path: Path) -> None:
    def hum(phonemes: str, style: teacher.Wave, speed: float) -> tuple[teacher.Wave, list[int]]:
        mark = round(8 / speed)
        durations = [20, *[mark] * len(phonemes), 20]
        wave = np.zeros(600 * sum(durations), np.float32)
        time = np.arange(600 * mark * len(phonemes)) / data.SAMPLE_RATE
        first = 12_000 - data.TEACHER_LATE
        wave[first : first + len(time)] = 2 * (style[0] * time % 1) - 1  # all harmonics
        return wave, durations

    voices = {
        "af_toy": np.full((4, 1), 200, np.float32),
        "am_toy": np.full((9, 1), 100, np.float32),
    }
    half = teacher.Speaker("mix_0", {"af_toy": 0.5, "am_toy": 0.5})
    small = teacher.Speaker("mix_1", {"am_toy": 1.0}, formants=1.25)
    sentences = [(f'"Ah," said {n}.', "ɑi" * n) for n in range(3, 7)]
    speakers = [teacher.Speaker("af_toy", {"af_toy": 1.0}), half, small]
    teacher.speak(hum, sentences, speakers, voices, tmp_path)
    rows = data.read_index(tmp_path)
    assert [row["text"] for row in rows] == [sentences[n][0] for n in (0, 3, 1, 2)]
    for row in rows:
        ((_, found),) = data._read_file(tmp_path, row["file"], [row])
        said = [mark for mark in found["phone"] if mark != data.SILENCE]
        assert len(said) == pytest.approx(10 * len(row["phonemes"]), abs=5)
        voiced = found["f0"][found["f0"] > 0]
        pitch = {"af_toy": 200, "mix_0": 150, "mix_1": 125}[row["voice"]]
        assert np.median(voiced) == pytest.approx(pitch, rel=0.03)


def test_a_style_may_have_the_prosody_of_another() -> None:
    voices = {name: np.full((9, teacher.STYLE), k, np.float32) for k, name in enumerate("abc")}
    style = teacher.Speaker("mix_0", {"b": 1.3, "a": -0.3}, prosody="c").style(voices, 40)
    assert style[: teacher.TIMBRE] == pytest.approx(1.3)
    assert (style[teacher.TIMBRE :] == 2).all()
    mixed = teacher.mixtures(["af_a", "af_b", "am_a", "am_b"], 200, random.Random(0))
    assert 0.3 < np.mean([s.prosody is not None for s in mixed]) < 0.5
    sizes = [s.formants for s in mixed]
    assert teacher.LARGEST <= min(sizes) < 0.9
    assert 1.1 < max(sizes) <= teacher.SMALLEST


def test_a_timbre_may_be_one_that_no_mixture_has() -> None:
    voices = {name: np.full((9, teacher.STYLE), k, np.float32) for k, name in enumerate("abc")}
    aside = tuple(float(k) for k in range(teacher.TIMBRE))
    style = teacher.Speaker("mix_0", {"b": 0.5, "c": 0.5}, aside=aside).style(voices, 40)
    assert style[: teacher.TIMBRE] == pytest.approx(1.5 + np.arange(teacher.TIMBRE))
    assert (style[teacher.TIMBRE :] == 1.5).all()
    mixed = teacher.mixtures(["af_a", "af_b", "am_a", "am_b"], 200, random.Random(0))
    moved = [np.linalg.norm(s.aside) for s in mixed if s.aside]
    assert 0.5 < len(moved) / 200 < 0.7
    assert teacher.ASIDE[0] <= min(moved) < 0.6
    assert 1.8 < max(moved) <= teacher.ASIDE[1]
