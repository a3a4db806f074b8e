"""The times of words in speech of the shipped voice."""

from __future__ import annotations

import numpy as np
import pytest

import cosyserve
from cosyserve.alignment.aligner import Aligner
from cosyserve.audio.silence import leading_silence
from cosyserve.contracts import SAMPLE_RATE

PARTS = ("Good morning.", "The kettle is on the table.", "Where did you find it?")


def test_words_are_heard_when_they_are_told() -> None:
    """Parts that were spoken alone begin where they were put."""
    tts = cosyserve.load("nano")
    pause = np.zeros(SAMPLE_RATE // 5, np.float32)
    begins, joined, at = {}, [], 0
    number = 0
    for part in PARTS:
        samples = np.concatenate([chunk.samples for chunk in tts.stream(part)])
        silence = leading_silence(samples)
        assert silence is not None
        begins[number] = (at + silence) / SAMPLE_RATE
        number += len(part.split())
        joined += [samples, pause]
        at += len(samples) + len(pause)
    aligner = Aligner()
    aligner.push_text(" ".join(PARTS))
    aligner.end_text()
    told = aligner.push(np.concatenate(joined)) + aligner.finish()
    assert [word.word for word in told] == " ".join(PARTS).split()
    for number, begin in begins.items():
        assert told[number].start == pytest.approx(begin, abs=0.1)
