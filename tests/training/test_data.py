"""What the recipes read: labels, pitch, pronunciations."""

from __future__ import annotations

import numpy as np

from training import data, pronounce
from training.pitch import pitch


def test_labels_follow_durations() -> None:
    late = data.TEACHER_LATE
    row = {"phonemes": "ˈɑ i.", "durations": "2 1 3 1 2 5 2", "trim": str(600 - late)}
    labels = data.phone_labels(row, 4)
    assert labels[0] == data.SILENCE
    assert "".join(labels) == "_ɑɑɑɑɑɑi"


def test_pauses_are_silent_and_only_they() -> None:
    loud, quiet = np.full((1, 80), -3.0), np.full((1, 80), -11.0)
    mel = np.concatenate([quiet] * 2 + [loud] * 4 + [quiet] * 5 + [loud] * 6 + [quiet] * 2)
    assert "".join(data.hushed([*"ɑɑɑɑɑttttttssss___s"], mel)) == "__ɑɑɑt_____ssss_ss"[:15] + "ss__"


def test_frames_of_the_human_are_unknown() -> None:
    assert data.phone_labels({"durations": ""}, 2) == [""] * 4


def test_pitch_of_a_tone_and_of_silence() -> None:
    time = np.arange(16_000) / 16_000
    for hertz in (83.7, 123.4, 200.0, 311.1):
        tone = sum(np.sin(2 * np.pi * k * hertz * time) / k for k in range(1, 12))
        found = pitch(np.concatenate((0.2 * tone, np.zeros(16_000))), 100)
        assert np.abs(1200 * np.log2(found[5:45] / hertz)).max() < 4  # cents
        assert not found[55:].any()


def test_windows_share_one_offset(corpus: data.Corpus) -> None:
    first = corpus.start[1:2]
    for name, rate in data.PER_TOKEN.items():
        assert corpus.windows(name, first, 3).shape[1] == 3 * rate
        assert len(corpus[name]) == rate * corpus.tokens


def test_words_sound_as_the_corpus_says_them() -> None:
    rows = [{"voice": "af_toy", "text": "Oh, you!", "phonemes": "ˈO, ju!"}]
    rows += [{"voice": "bf_toy", "text": "you", "phonemes": "juː"}]
    assert pronounce.corpus_words(rows) == {"oh": "ˈO", "you": "ju"}
