"""Voices by name in a folder. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cosyserve.contracts import Voice, VoiceError
from cosyserve.voices.file import load_voice, save_voice

NAME = re.compile(r"\w[\w.-]{0,63}")  # letters of any script: the original's voices are 中文女 etc.
MAX_NAME_BYTES = 200  # file systems allow 255, suffixes included


class FolderStore:
    """One file a voice. `shipped` files belong to the model: readable, not removable."""

    def __init__(self, folder: Path, shipped: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._shipped = {file.stem: file for file in shipped}

    def names(self) -> list[str]:
        own = {file.stem for file in self.folder.glob("*.safetensors") if file.is_file()}
        return sorted(name for name in own | self._shipped.keys() if _is_name(name))

    def get(self, name: str) -> Voice:
        own = self._file(name)
        file = own if own.exists() else self._shipped.get(name)
        if file is None:
            known = ", ".join(self.names()[:8]) or "none yet"
            raise VoiceError(f"no voice named '{name}' (known: {known}): `cosyserve voice add`")
        return load_voice(file)

    def put(self, name: str, voice: Voice) -> Path:
        file = self._file(name)
        save_voice(voice, file)
        return file

    def remove(self, name: str) -> None:
        file = self._file(name)
        if not file.exists() and name in self._shipped:
            raise VoiceError(f"voice '{name}' is part of the model and can't be removed")
        try:
            file.unlink()
        except FileNotFoundError as error:
            raise VoiceError(f"no voice named '{name}'") from error
        except OSError as error:
            raise VoiceError(f"{file}: can't be removed: {error.strerror}") from error

    @staticmethod
    def check_name(name: str) -> None:
        """Refuses what could leave the folder, or make a shell or a URL trip."""
        if not _is_name(name):
            raise VoiceError(
                f"{name!r:.80} can't be a voice's name: use up to 64 letters, digits, '_', '-', '.'"
            )

    def _file(self, name: str) -> Path:
        self.check_name(name)
        return self.folder / f"{name}.safetensors"


def _is_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None and len(name.encode()) <= MAX_NAME_BYTES
