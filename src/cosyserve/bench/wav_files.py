"""Speech on disk: one WAV file an item, in a folder that is made."""

from __future__ import annotations

from pathlib import Path

from cosyserve.audio.linear import BYTES_PER_SAMPLE, WavStream
from cosyserve.contracts import SAMPLE_RATE
from cosyserve.errors import InputError


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} can't be made: {error.strerror}") from error


def speech_file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '_')}.wav"


def write_wav(file: Path, pcm: bytes) -> None:
    header = WavStream(SAMPLE_RATE, len(pcm) // BYTES_PER_SAMPLE).header()
    try:
        file.write_bytes(header + pcm)
    except OSError as error:
        raise InputError(f"{file} can't be written: {error.strerror}") from error
