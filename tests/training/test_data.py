"""What the recipes read: labels, pitch, pronunciations, imagined speech; how words are judged."""

from __future__ import annotations

import numpy as np

from training import data, evaluate, pronounce
from training.imagined import Imagination
from training.pitch import pitch


def test_labels_follow_durations() -> None:
    row = {"phonemes": "ˈɑ i.", "durations": "2 1 3 1 2 5 2", "trim": "600"}
    labels = data.phone_labels(row, 4)
    assert labels[0] == data.SILENCE
    assert "".join(labels) == "_ɑɑɑɑɑɑi"


def test_frames_of_the_human_are_unknown() -> None:
    assert data.phone_labels({"durations": ""}, 2) == [""] * 4


def test_pitch_of_a_tone_and_of_silence() -> None:
    time = np.arange(16_000) / 16_000
    tone = np.sin(2 * np.pi * 200 * time) + 0.5 * np.sin(2 * np.pi * 400 * time)
    found = pitch(np.concatenate((0.2 * tone, np.zeros(16_000))), 100)
    assert np.median(np.abs(found[5:45] - 200)) < 5
    assert not found[55:].any()


def test_windows_share_one_offset(corpus: data.Corpus) -> None:
    first = corpus.start[1:2]
    for name, rate in data.PER_TOKEN.items():
        assert corpus.windows(name, first, 3).shape[1] == 3 * rate
        assert len(corpus[name]) == rate * corpus.tokens


def test_sentences_are_pronounced_word_by_word() -> None:
    words = {"oh": "ˈO", "you": "ju"}
    assert pronounce.pronounced("Oh, you!", words) == "ˈO, ju!"
    assert pronounce.pronounced("Oh, they!", words) is None


def test_imagined_speech_uses_codes_that_were_heard() -> None:
    imagination = Imagination(["_", "ɑ", "i"], [([7, 8, 9], [0, 0, 1, 1, 2, 2])])
    assert imagination.speak("ɑ") is not None
    assert set(imagination.speak("ɑi") or []) <= {7, 8, 9}
    assert imagination.speak("ʒ") is None


def test_word_errors() -> None:
    assert evaluate.word_errors("It's two o'clock.", "its 2 o'clock") == (1, 3)
    assert evaluate.word_errors("a b c", "") == (3, 3)
