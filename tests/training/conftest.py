"""A corpus of a few seconds: tones with pauses, two voices, labels as the teacher gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training import data


def _row(number: int, seconds: float, voice: str) -> tuple[dict[str, str], np.ndarray]:
    time = np.arange(int(24_000 * seconds)) / 24_000
    pitch = 120.0 if voice == "am_toy" else 220.0
    wave = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 6))
    wave = wave * (np.sin(2 * np.pi * 1.5 * time) > -0.5) * 0.2
    frames = len(time) // 600
    durations = [2, frames // 2, frames - frames // 2 - 4, 2]
    row = {
        "id": str(number),
        "voice": voice,
        "text": f"ah ee number {number}",
        "phonemes": "ɑi",
        "durations": " ".join(map(str, durations)),
        "trim": "0",
    }
    return row, wave.astype(np.float32)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> data.Corpus:
    folder: Path = tmp_path_factory.mktemp("arrays")
    found = []
    for number in range(12):
        row, wave = _row(number, 1.0 + 0.1 * (number % 3), ["am_toy", "af_toy"][number % 2])
        found.append((row, data.features(wave, row)))
    data.write(found, folder)
    return data.Corpus.load(folder)
