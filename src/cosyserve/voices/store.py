"""Voices by name, wherever they are kept.

A shelf keeps bytes. Which names there may be, what the bytes mean and which of them were read
before is known here.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from cosyserve.choices import VOICE_CACHE_BYTES
from cosyserve.contracts import Voice
from cosyserve.errors import InputError, MissingVoiceError, VoiceError
from cosyserve.voices.consents import ConsentStore
from cosyserve.voices.file import MAX_BYTES, from_bytes, to_bytes
from cosyserve.voices.memory.lru import IDLE_SECONDS, ByteLRU
from cosyserve.voices.shelves.folder import FolderShelf
from cosyserve.voices.shelves.redis import SCHEMES, RedisShelf
from cosyserve.voices.shelves.shelf import Shelf

DEFAULT = "default"  # a setting or the model says whose it is: nothing is kept under this name
NAME = re.compile(r"\w[\w.-]{0,63}")  # letters of any script: the original's voices are 中文女 etc.
MAX_NAME_BYTES = 200  # file systems allow 255, suffixes included
HEAD_BYTES = 16 << 10  # the header of nearly every voice file
HEADER_LENGTH = struct.Struct("<Q")


class VoiceStore:
    """May be used from several threads."""

    def __init__(self, shelf: Shelf, cache_bytes: int = VOICE_CACHE_BYTES) -> None:
        self._shelf = shelf
        self._read: ByteLRU[Voice] = ByteLRU(cache_bytes, IDLE_SECONDS)

    @cached_property
    def consents(self) -> ConsentStore:
        """Recordings of people who agree, kept at the same place."""
        return ConsentStore(self._shelf)

    def names(self) -> list[str]:
        return sorted(name for name in self._shelf.names() if _is_name(name))

    def get(self, name: str) -> Voice:
        voice = self.find(name)
        if voice is None:
            raise self.missing(name)
        return voice

    def find(self, name: str) -> Voice | None:
        """None: there is none of that name."""
        head = self._shelf.read(name, HEAD_BYTES) if _is_name(name) else None
        if head is None:
            return None
        return self._read.get(_header(head)) or self._read_whole(name, head)

    def put(self, name: str, voice: Voice) -> str:
        """Keeps the voice, instead of an older one of that name -> where it is now."""
        check_name(name)
        self._shelf.write(name, to_bytes(voice), replace=True)
        return self._shelf.where(name)

    def add(self, name: str, voice: Voice) -> bool:
        """Keeps the voice unless the name is taken; then False."""
        check_name(name)
        return self._shelf.write(name, to_bytes(voice), replace=False)

    def remove(self, name: str) -> None:
        if not _is_name(name):
            raise self.missing(name)
        head = self._shelf.read(name, HEAD_BYTES)
        if not self._shelf.remove(name):
            raise self.missing(name)
        self._read.remove(_header(head or b""))

    def _read_whole(self, name: str, head: bytes) -> Voice | None:
        data: bytes | None = head
        if len(head) == HEAD_BYTES:
            data = self._shelf.read(name, MAX_BYTES + 1)
        if data is None:  # removed between two looks
            return None
        voice = from_bytes(data, f"voice '{name}'")
        if key := _header(data[:HEAD_BYTES]):
            self._read.put(key, voice, len(data))
        return voice

    def missing(self, name: str, shipped: Iterable[str] = ()) -> MissingVoiceError:
        """The error for a name that is no voice's; `shipped` are names that are none of the
        store's, and known."""
        if not _is_name(name):
            return MissingVoiceError(_no_name(name))
        known = ", ".join(sorted({*self.names(), *shipped} - {DEFAULT})[:8]) or "none yet"
        return MissingVoiceError(f"no voice named '{name}' (known: {known}): `cosyserve voice add`")


def open_store(place: str, cache_bytes: int = VOICE_CACHE_BYTES) -> VoiceStore:
    """The store at a folder's path or a Redis URL."""
    if place.startswith(SCHEMES):
        return VoiceStore(RedisShelf(place), cache_bytes)
    scheme, is_url, _ = place.partition("://")
    if is_url:
        known = ", ".join(SCHEMES)
        raise InputError(f"no voices are kept at {scheme}://: give a folder or one of {known}")
    folder = Path(place).expanduser()
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder}: voices are kept in a folder, and this is none")
    return VoiceStore(FolderShelf(folder), cache_bytes)


def check_name(name: str) -> None:
    """Refuses what could leave a folder, or make a shell or a URL trip."""
    if name == DEFAULT:
        raise VoiceError(
            f"'{DEFAULT}' is the voice that --default-voice or the model chooses: take another name"
        )
    if not _is_name(name):
        raise VoiceError(_no_name(name))


def _is_name(name: str) -> bool:
    if name == DEFAULT or len(name) > 64:
        return False
    return NAME.fullmatch(name) is not None and len(name.encode()) <= MAX_NAME_BYTES


def _no_name(name: str) -> str:
    return f"{name!r:.80} can't be a voice's name: use up to 64 letters, digits, '_', '-', '.'"


def _header(head: bytes) -> str:
    """The key of a voice file: its header, which names the hash of the rest.

    "" when the header is not all there.
    """
    if len(head) < HEADER_LENGTH.size:
        return ""
    end = HEADER_LENGTH.size + HEADER_LENGTH.unpack_from(head)[0]
    return head[:end].decode("latin-1") if end <= len(head) else ""
