"""Voice files in a folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cosyserve.errors import StoreError, VoiceError
from cosyserve.voices.file import read_file, write_file

SUFFIX = ".safetensors"


class FolderShelf:
    """Implements `shelf.Shelf`."""

    def __init__(self, folder: Path, suffix: str = SUFFIX) -> None:
        self.folder = folder
        self._suffix = suffix
        self._changing = threading.Lock()  # what is removed must not be rewritten afterwards

    def names(self) -> list[str]:
        try:
            with os.scandir(self.folder) as files:
                found = [file.name for file in files if file.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self.folder}: can't be listed: {error.strerror}") from error
        return [name.removesuffix(self._suffix) for name in found if name.endswith(self._suffix)]

    def read(self, name: str, max_bytes: int) -> bytes | None:
        try:
            return read_file(self._file(name), max_bytes, f"'{name}'")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{error.filename}: can't be read: {error.strerror}") from error

    def write(self, name: str, data: bytes, *, replace: bool) -> bool:
        return write_file(self._file(name), data, replace=replace)

    def rewrite(self, name: str, data: bytes) -> bool:
        file = self._file(name)
        with self._changing:
            return file.exists() and write_file(file, data)

    def remove(self, name: str) -> bool:
        file = self._file(name)
        try:
            with self._changing:
                file.unlink()
        except FileNotFoundError:
            return False
        except IsADirectoryError as error:
            raise VoiceError(f"'{name}': can't be removed: it is a folder") from error
        except OSError as error:
            raise StoreError(f"{file}: can't be removed: {error.strerror}") from error
        return True

    def where(self, name: str) -> str:
        return str(self._file(name))

    def beside(self, kind: str) -> FolderShelf:
        return FolderShelf(self.folder / kind, f".{kind}")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}{self._suffix}"
