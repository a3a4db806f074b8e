"""Recordings in which people agree to the use of their voice.

One is kept as a line of JSON, which says what it is, and the bytes of the recording.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from dataclasses import asdict, dataclass, replace

from cosyserve.errors import VoiceError
from cosyserve.voices.file import MAX_BYTES
from cosyserve.voices.shelves.shelf import Shelf

KIND = "consent"
PREFIX = "cons_"
ID = re.compile(PREFIX + "[0-9a-f]{32}")
MAX_HEAD_BYTES = 16 << 10

log = logging.getLogger("cosyserve.voices")


@dataclass(frozen=True)
class Consent:
    id: str
    name: str  # for people
    language: str
    created_at: int  # seconds since 1970


KINDS = {"id": str, "name": str, "language": str, "created_at": int}


class ConsentStore:
    """May be used from several threads."""

    def __init__(self, place: Shelf) -> None:
        """`place`: the shelf beside which consents are kept."""
        self._shelf = place.beside(KIND)

    def add(self, name: str, language: str, recording: bytes) -> Consent:
        consent = Consent(PREFIX + uuid.uuid4().hex, name, language, int(time.time()))
        self._shelf.write(consent.id, _to_bytes(consent, recording), replace=False)
        return consent

    def all(self) -> list[Consent]:
        """The newest first, without those that are damaged."""
        known = []
        for id in self._shelf.names():
            try:
                consent = self.get(id)
            except VoiceError as error:
                log.warning("%s", error)
            else:
                known += [consent] if consent else []
        return sorted(known, key=lambda consent: (-consent.created_at, consent.id))

    def get(self, id: str) -> Consent | None:
        head = self._shelf.read(id, MAX_HEAD_BYTES) if ID.fullmatch(id) else None
        return None if head is None else self._read(id, head)

    def rename(self, id: str, name: str) -> Consent | None:
        data = self._shelf.read(id, MAX_BYTES) if ID.fullmatch(id) else None
        if data is None:
            return None
        consent = replace(self._read(id, data), name=name)
        kept = self._shelf.rewrite(id, _to_bytes(consent, data.partition(b"\n")[2]))
        return consent if kept else None

    def remove(self, id: str) -> bool:
        return ID.fullmatch(id) is not None and self._shelf.remove(id)

    def _read(self, id: str, data: bytes) -> Consent:
        try:
            consent = Consent(**json.loads(data.partition(b"\n")[0]))
            kinds = {name: type(value) for name, value in vars(consent).items()}
            if kinds != KINDS or consent.id != id:
                raise TypeError
            return consent
        except (ValueError, TypeError, RecursionError) as error:
            raise VoiceError(f"consent '{id}': not a consent, or damaged") from error


def _to_bytes(consent: Consent, recording: bytes) -> bytes:
    return json.dumps(asdict(consent)).encode() + b"\n" + recording
