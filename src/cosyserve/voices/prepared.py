"""The voices of a model that is prepared: each a file of its own, one of them `default`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cosyserve.checkpoints.parts import Parts
from cosyserve.voices.file import save_voice
from cosyserve.voices.fits import check_fits
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.shelves.folder import SUFFIX
from cosyserve.voices.shipped import named_voices
from cosyserve.voices.store import DEFAULT, VoiceStore


def with_voice_files(parts: Parts, folder: Path, store: VoiceStore, default_voice: str) -> Parts:
    """The parts with their voices, the speakers of a spk2info.pt among them, as files in `folder`.

    `default_voice` names one of them, or a stored one, that is to be `default`; "" leaves it open.
    """
    voices = named_voices(parts)
    if default_voice:
        chosen = VoiceLibrary(store, lambda: voices, default_voice).get(DEFAULT)
        check_fits(chosen, parts.config.voice_format)
        voices = {**voices, DEFAULT: chosen}
    files = {folder / f"{name}{SUFFIX}": voice for name, voice in voices.items()}
    for file, voice in files.items():
        save_voice(voice, file)
    return replace(parts, voices=tuple(sorted(files)))
